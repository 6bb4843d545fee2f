"""Scale and precision of scores: from 0 to 1, in units of the noise (section 3.2), in float32."""

from contextlib import AbstractContextManager, nullcontext

import torch
from torch import Tensor

SMALLEST_RANGE = 1e-5


def rescale(scores: Tensor) -> Tensor:
    """Stretch the last dimension to [0, 1]; scores that are all equal become 0.

    Two scores would become 0 and 1 whatever they are, without a gradient: of these the softmax is
    taken, which has the same order and learns.
    """
    if scores.shape[-1] == 2:
        return scores.softmax(dim=-1)
    low = scores.amin(dim=-1, keepdim=True)
    high = scores.amax(dim=-1, keepdim=True)
    return (scores - low) / (high - low).clamp_min(SMALLEST_RANGE)


_CERTAIN = 50.0  # deviations of the noise after which a candidate's fate is settled


def positive(sigma: Tensor) -> Tensor:
    """Put 1 in place of 0, without looking at the value."""
    return torch.where(sigma > 0, sigma, 1.0)


def in_units_of_noise(scores: Tensor, sigma: Tensor, k: int) -> Tensor:
    """Measure the scores from the k-th one in standard deviations of the noise.

    Subtracted before it is scaled, a small difference of large scores survives float32. Candidates
    further away than the noise can reach, infinite scores too, are moved to where they are still
    certain.

    Args:
        scores: (..., l).
        sigma: 0-d standard deviation of the noise; 1 is taken in place of 0.
        k: the rank, from 1, of the score that becomes 0.

    Returns:
        (..., l) scores in [-50, 50].
    """
    limit = torch.finfo(scores.dtype).max / 4  # so that infinite scores can be subtracted
    scores = scores.clamp(-limit, limit)
    threshold = scores.topk(k, dim=-1).values[..., -1:]
    return (scores - threshold).div_(positive(sigma)).clamp_(-_CERTAIN, _CERTAIN)


def without_autocast(device: str) -> AbstractContextManager[object]:
    """Turn autocast off on a kind of device: it would round products of float32."""
    is_on = device != "meta" and torch.is_autocast_enabled(device)  # "meta" knows no autocast
    return torch.autocast(device, enabled=False) if is_on else nullcontext()
