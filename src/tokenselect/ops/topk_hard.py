"""Hard Top-K: the selection of inference and the limit of the smoothed one (paper, section 3.2)."""

import torch
from torch import Tensor


class NonFiniteScoresError(ValueError):
    """Scores are NaN, so that none is the highest: what came before the selector has failed."""


def check_topk_arguments(scores: Tensor, k: int) -> None:
    """Refuse a `k` that cannot be kept and scores that have no order.

    The scores' values are looked at on a CPU in eager mode only. An accelerator would have to be
    waited for, and a traced graph would break: there, NaN scores give NaN logits.
    """
    num_candidates = scores.shape[-1] if scores.ndim else 0
    if not 1 <= k <= num_candidates:
        raise ValueError(f"k must be in 1..{num_candidates} (the number of candidates), got {k}")
    if torch.compiler.is_compiling() or scores.device.type != "cpu":
        return
    if num_nan := int(scores.isnan().sum()):
        raise NonFiniteScoresError(f"scores must not be NaN, got {num_nan} NaN values")


def hard_topk(scores: Tensor, k: int) -> Tensor:
    """Find the k highest scores; of equal scores the earlier one is kept.

    `torch.topk` finds the threshold only: which of equal scores it returns depends on the device,
    and a stable sort, which would do, has no counterpart in ONNX.

    Args:
        scores: (..., l) one score a candidate.
        k: how many to keep, 1 to l.

    Returns:
        (..., k) indices of the kept candidates in input order.
    """
    check_topk_arguments(scores, k)
    return rank_topk(scores, k)


def rank_topk(scores: Tensor, k: int) -> Tensor:
    """`hard_topk` without its checks, for callers that have made them."""
    if k == 1:
        return scores.argmax(dim=-1, keepdim=True)  # the first of equal maxima
    num_candidates = scores.shape[-1]
    threshold = scores.topk(k, dim=-1).values[..., -1:]
    is_above, is_tied = scores > threshold, scores == threshold
    room = k - is_above.sum(dim=-1, keepdim=True)
    is_kept = is_above | (is_tied & (is_tied.cumsum(dim=-1) <= room))
    places = torch.arange(num_candidates, device=scores.device)
    kept = torch.where(is_kept, places, num_candidates).sort(dim=-1).values[..., :k]
    return kept.clamp_max(num_candidates - 1)  # of NaN scores none is kept: any index will do


def one_hot_topk(scores: Tensor, k: int) -> Tensor:
    """Give `hard_topk` as a (..., k, l) indicator: row i is the one-hot of the i-th kept candidate.

    It has the scores' dtype and no gradient.
    """
    indices = hard_topk(scores, k).unsqueeze(-1)  # (..., k, 1)
    return scores.new_zeros(*indices.shape[:-1], scores.shape[-1]).scatter(-1, indices, 1.0)
