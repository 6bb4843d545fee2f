"""The differentiable Top-K of the paper, section 3.2: one entry to every way of smoothing it."""

import torch
from torch import Tensor

from tokenselect.ops.topk_exact import exact_topk
from tokenselect.ops.topk_hard import check_topk_arguments, one_hot_topk
from tokenselect.ops.topk_sampled import sampled_topk


def gumbel_topk(
    scores: Tensor, k: int, *, temperature: float = 1.0, generator: torch.Generator | None = None
) -> Tensor:
    """Draw k candidates without replacement, hard forward and relaxed backward.

    The k largest of scores plus Gumbel noise are such a draw. The j-th largest is a Gumbel-softmax
    choice among those not yet drawn, so its gradient is that of the softmax over them.

    Args:
        scores: (..., l) unnormalised log-probabilities.
        k: how many to keep, 1 to l.
        temperature: of the softmax; lower is nearer to the hard choice, with a wilder gradient.
        generator: source of the noise; torch's global one when None.

    Returns:
        (..., k, l) one-hot rows in input order, differentiable in `scores` (straight-through).
    """
    if not temperature > 0:
        raise ValueError(f"temperature must be above 0, got {temperature}")
    check_topk_arguments(scores, k)
    logits = scores.to(torch.promote_types(scores.dtype, torch.float32))
    keys = logits - torch.empty_like(logits).exponential_(generator=generator).log()
    drawn = keys.detach().topk(k, dim=-1).indices.unsqueeze(-1)  # (..., k, 1), first drawn first
    hard = keys.new_zeros(*keys.shape[:-1], k, keys.shape[-1]).scatter(-1, drawn, 1.0)
    is_gone = hard.cumsum(dim=-2) - hard > 0
    relaxed = (keys.unsqueeze(-2) / temperature).masked_fill(is_gone, -torch.inf).softmax(dim=-1)
    indicator = hard + (relaxed - relaxed.detach())
    order = drawn.argsort(dim=-2).expand_as(indicator)
    return indicator.gather(-2, order).to(scores.dtype)


SMOOTHINGS = ("exact", "sampled", "diagonal", "auto")


def choose_method(num_candidates: int, k: int) -> str:
    """Say how to smooth a Top-K of this size: "exact" or "sampled".

    Exact where one is kept, or all but one, and for up to 32 candidates: there it takes a tenth to
    2.5 times the time of 500 samples and has none of their noise. Beyond, its cost grows with
    l · min(k, l - k) · √l, that of sampling with l (docs/topk.md has the measurements).
    """
    is_cheap = num_candidates <= 32 or min(k, num_candidates - k) <= 1
    return "exact" if is_cheap else "sampled"


def perturbed_topk(
    scores: Tensor,
    k: int,
    sigma: float | Tensor,
    *,
    method: str = "exact",
    num_samples: int = 500,
    generator: torch.Generator | None = None,
    antithetic: bool = False,
    control_variate: bool = False,
) -> Tensor:
    """Smooth the Top-K indicator by Gaussian noise on the scores, so that it has a gradient.

    Args:
        scores: (..., l) one score a candidate; an infinite score is kept, or dropped, for certain.
        k: how many to keep, 1 to l.
        sigma: standard deviation of the noise. The number 0 gives the hard indicator; a 0-d tensor
            is never looked at, so a compiled graph serves every value of a falling schedule.
        method: "exact" computes the expectation, "sampled" estimates it and its gradient from
            `num_samples` perturbations, "diagonal" estimates only the gradient's diagonal as the
            paper's released code does, "auto" is what `choose_method` says.
        num_samples: perturbations averaged by the sampled methods.
        generator: source of the noise of the sampled methods; torch's global one when None.
        antithetic: the sampled methods use every perturbation with both signs.
        control_variate: the sampled method's gradient is taken relative to the unperturbed choice.

    Returns:
        (..., k, l) indicator in the scores' dtype, computed in float32 at least: row i weighs the
        candidates for the i-th kept place, in input order.
    """
    if method not in SMOOTHINGS:
        raise ValueError(f"method must be one of {', '.join(SMOOTHINGS)}, got {method!r}")
    check_topk_arguments(scores, k)
    if not isinstance(sigma, Tensor):
        if not sigma >= 0:
            raise ValueError(f"sigma must be at least 0, got {sigma}")
        if sigma == 0:
            return one_hot_topk(scores, k)
    num_candidates = scores.shape[-1]
    if method == "auto":
        method = choose_method(num_candidates, k)
    flat = scores.reshape(-1, num_candidates).to(torch.promote_types(scores.dtype, torch.float32))
    deviation = torch.as_tensor(sigma, dtype=flat.dtype, device=flat.device)
    if method == "exact":
        indicator = exact_topk(flat, deviation, k)
    else:
        indicator = sampled_topk(
            flat,
            deviation,
            k,
            num_samples=num_samples,
            generator=generator,
            antithetic=antithetic,
            control_variate=control_variate,
            only_diagonal=method == "diagonal",
        )
    indicator = indicator.view(*scores.shape[:-1], k, num_candidates).to(scores.dtype)
    if isinstance(sigma, Tensor):
        indicator = torch.where(sigma > 0, indicator, one_hot_topk(scores, k))
    return indicator
