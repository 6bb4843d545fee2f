"""Gumbel-softmax Top-K, the baseline "GS" of the paper's comparison (section 4.2)."""

import torch
from torch import Tensor

from tokenselect.ops.topk_hard import check_topk_arguments


def gumbel_topk(
    scores: Tensor,
    k: int,
    *,
    temperature: float = 1.0,
    generator: torch.Generator | None = None,
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
    noise = torch.empty_like(logits).exponential_(generator=generator).log()
    keys = logits - noise
    drawn = keys.detach().topk(k, dim=-1).indices.unsqueeze(-1)  # (..., k, 1), first drawn first
    hard = torch.zeros_like(keys).unsqueeze(-2).expand(*keys.shape[:-1], k, -1)
    hard = hard.scatter(-1, drawn, 1.0)
    is_gone = hard.cumsum(dim=-2) - hard > 0
    relaxed = (keys.unsqueeze(-2) / temperature).masked_fill(is_gone, -torch.inf).softmax(dim=-1)
    indicator = hard + (relaxed - relaxed.detach())
    order = drawn.argsort(dim=-2).expand_as(indicator)
    return indicator.gather(-2, order).to(scores.dtype)
