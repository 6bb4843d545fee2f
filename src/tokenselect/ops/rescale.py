"""Min-max rescaling of scores (section 3.2)."""

from torch import Tensor

SMALLEST_RANGE = 1e-5


def rescale(scores: Tensor) -> Tensor:
    """Stretch the last dimension to [0, 1]; scores that are all equal become 0."""
    low = scores.amin(dim=-1, keepdim=True)
    high = scores.amax(dim=-1, keepdim=True)
    return (scores - low) / (high - low).clamp_min(SMALLEST_RANGE)
