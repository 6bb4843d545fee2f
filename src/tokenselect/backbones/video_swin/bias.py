"""Relative position biases, looked up by the offset between two tokens of a window."""

import math

import torch
import torch.nn.functional as F
from torch import Tensor

from tokenselect.backbones.video_swin.windows import THW


def offset_bias(table: Tensor, *, window: THW, size: THW, seam: THW = (0, 0, 0)) -> Tensor:
    """Look up the biases of a window that may be smaller than the one the table was made for.

    Args:
        table: (offsets, heads); offsets in time, rows and columns from -(side - 1) to side - 1.
        window: sides of the largest window.
        size: sides of the actual window of n tokens, none larger.
        seam: tokens before the seam of each axis, or 0; pairs across a seam get -inf.

    Returns:
        (heads, n, n) biases of query tokens (dim 1) towards key tokens (dim 2).
    """
    place = _places(window, size, seam, table.device)
    centre = len(table) // 2 + 1  # one of the two outside values stands in front
    index = (place[:, None] - place + centre).clamp(0, len(table) + 1)
    biases = F.pad(table.t(), (1, 1), value=-math.inf)  # (heads, 1 + offsets + 1)
    n = len(place)
    return biases.index_select(1, index.flatten()).view(-1, n, n)


def _places(window: THW, size: THW, seam: THW, device: torch.device) -> Tensor:
    """Give each of a window's n tokens a number so that differences are the table's rows.

    Beyond a seam the numbers jump by more than the table's length, and by another amount on each
    axis: differences across any seam fall outside the table.
    """
    t, h, w = (2 * side - 1 for side in window)
    jump = 2 * t * h * w
    axes = []
    for side, step, before in zip(size, (h * w, w, 1), seam, strict=True):
        numbers = [i * step + jump * (0 < before <= i) for i in range(side)]
        axes.append(torch.tensor(numbers, device=device))
        jump = 2 * jump
    times, rows, columns = axes
    return (times[:, None, None] + rows[:, None] + columns).flatten()
