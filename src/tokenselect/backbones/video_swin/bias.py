"""Relative position biases, looked up by the offset between two tokens of a window."""

import torch
from torch import Tensor

from tokenselect.backbones.video_swin.windows import THW, Run


def offset_bias(table: Tensor, *, window: THW, size: THW) -> Tensor:
    """Lay out the biases of a window that may be smaller than the one the table was made for.

    Args:
        table: (offsets, heads); offsets in time, rows and columns from -(side - 1) to side - 1.
        window: sides of the largest window.
        size: sides of the actual window of n tokens, none larger.

    Returns:
        (heads, n, n) biases of query tokens (dim 1) towards key tokens (dim 2).
    """
    offsets = table.t().unflatten(1, [2 * side - 1 for side in window])
    for axis, (largest, side) in enumerate(zip(window, size, strict=True), start=1):
        # entry (i, m) of the unfolded axis is offset i + m - (side - 1): key side - 1 - m
        offsets = offsets.narrow(axis, largest - side, 2 * side - 1).unfold(axis, side, 1)
    return offsets.flip(4, 5, 6).flatten(4, 6).flatten(1, 3)


def seam_mask(group: tuple[Run, Run, Run], device: torch.device) -> Tensor | None:
    """Return the (n, n) pairs of a window's tokens that a seam parts; None without a seam."""
    if not any(run.seam for run in group):
        return None
    part = torch.zeros((), dtype=torch.long, device=device)
    for run in group:
        beyond = torch.arange(run.size, device=device) >= (run.seam or run.size)
        part = part[..., None] * 2 + beyond
    part = part.flatten()
    return part[:, None] != part
