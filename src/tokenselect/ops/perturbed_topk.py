"""The differentiable Top-K of the paper, section 3.2: one entry to every way of smoothing it."""

import torch
from torch import Tensor

from tokenselect.ops.topk_hard import check_topk_arguments, one_hot_topk
from tokenselect.ops.topk_sampled import sampled_topk


def perturbed_topk(
    scores: Tensor,
    k: int,
    sigma: float | Tensor,
    *,
    method: str = "exact",
    num_samples: int = 500,
    generator: torch.Generator | None = None,
) -> Tensor:
    """Smooth the Top-K indicator by Gaussian noise on the scores, so that it has a gradient.

    Args:
        scores: (..., l) one score a candidate.
        k: how many to keep, 1 to l.
        sigma: standard deviation of the noise. The number 0 gives the hard indicator; a 0-d tensor
            is never looked at, so a compiled graph serves every value of a falling schedule.
        method: "exact" or "sampled".
        num_samples: perturbations averaged by the sampled method.
        generator: source of the noise of the sampled method; torch's global one when None.

    Returns:
        (..., k, l) indicator: row i weighs the candidates for the i-th kept place, in input order.
    """
    if method not in ("exact", "sampled"):
        raise ValueError(f"method must be 'exact' or 'sampled', got {method!r}")
    check_topk_arguments(scores, k)
    if not isinstance(sigma, Tensor):
        if not sigma >= 0:
            raise ValueError(f"sigma must be at least 0, got {sigma}")
        if sigma == 0:
            return one_hot_topk(scores, k)
        sigma = scores.new_tensor(sigma)
    return sampled_topk(scores, k, sigma, num_samples=num_samples, generator=generator)
