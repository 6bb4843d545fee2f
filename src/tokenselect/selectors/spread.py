"""Evenly spread frames and the middle of the picture: what is kept where nothing is known yet."""

import torch
from torch import Tensor

ENVELOPE = 0.9  # under 1, so that frames in the middle of a part stay above all others
STEEPNESS = 4.0  # of patches: regions are averages, whose scores lie closer together


def middles(length: int, keep: int) -> list[int]:
    """List the middles of `keep` equal parts of `length`."""
    return [(2 * part + 1) * length // (2 * keep) for part in range(keep)]


def spread_frames(length: int, keep: int, device: torch.device) -> Tensor:
    """Score frames: the middles of `keep` equal parts lie above all others; (t,).

    A frame loses 1 for each step from the nearest middle, and up to 0.9 towards the ends of the
    clip, so that no two neighbours in rank are far apart: what is learnt on top can change places.
    """
    places = torch.arange(length, device=device, dtype=torch.float32)
    kept = torch.tensor(middles(length, keep), device=device, dtype=torch.float32)
    steps = (places[:, None] - kept).abs().amin(dim=1)
    return -steps - ENVELOPE * from_centre(length, device).abs()


def central_patches(h: int, w: int, device: torch.device) -> Tensor:
    """Score patches by how near they are to the centre, from −4 in the corners: (h, w)."""
    rows, columns = from_centre(h, device).square(), from_centre(w, device).square()
    return -STEEPNESS * (rows[:, None] + columns) / 2


def from_centre(length: int, device: torch.device) -> Tensor:
    """Give the way from the centre, −1 to 1: (length,)."""
    half = max(length - 1, 1) / 2
    return (torch.arange(length, device=device, dtype=torch.float32) - (length - 1) / 2) / half
