"""Gumbel Top-K with a softmax's gradient: the Gumbel-softmax baseline of the paper's Table 1."""

import torch
from torch import Tensor

from tokenselect.ops.topk_hard import one_hot_topk


def gumbel_topk(
    scores: Tensor,
    k: int,
    *,
    temperature: float = 1.0,
    generator: torch.Generator | None = None,
) -> Tensor:
    """Draw k candidates without replacement, each in proportion to exp(score).

    The forward is the hard draw; the backward is that of k softmaxes, each over what the rows
    before it left (a relaxed subset), so the number kept is exact.

    Args:
        scores: (..., l) log-weights of the candidates.
        k: how many to keep, 1 to l.
        temperature: softness of the gradient's softmax.
        generator: source of the noise; torch's global one when None.

    Returns:
        (..., k, l) indicator, rows in input order.
    """
    if not temperature > 0:
        raise ValueError(f"temperature must be above 0, got {temperature}")
    uniform = torch.rand(
        scores.shape, dtype=scores.dtype, device=scores.device, generator=generator
    )
    tiny = torch.finfo(scores.dtype).tiny
    noisy = scores - (-uniform.clamp_min(tiny).log()).clamp_min(tiny).log()
    hard = one_hot_topk(noisy, k)
    soft = (noisy / temperature).unsqueeze(-2) + _taken_before(hard)
    soft = soft.softmax(dim=-1)
    return hard + soft - soft.detach()


def _taken_before(hard: Tensor) -> Tensor:
    """Give −∞ where an earlier row of the (..., k, l) indicator has its candidate, else 0."""
    before = hard.cumsum(dim=-2) - hard
    return torch.zeros_like(hard).masked_fill(before > 0, -torch.inf)
