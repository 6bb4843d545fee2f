"""Anchors: overlapping candidate regions on an h × w map, at a regular stride (section 3.3)."""

from functools import reduce

import torch
import torch.nn.functional as F
from torch import Tensor

Pair = tuple[int, int]


def default_stride(hw: Pair, side: Pair, parts: int = 1) -> Pair:
    """Give the stride α of the authors' code, half the free room and at least 1, over `parts`."""
    halves = (max((length - part) // 2, 1) for length, part in zip(hw, side, strict=True))
    rows, columns = (-(-half // parts) for half in halves)
    return rows, columns


def count_anchors(hw: Pair, side: Pair, stride: Pair) -> Pair:
    """Count the anchors down and across: (h − side) / α + 1 each."""
    for length, part in zip(hw, side, strict=True):
        if not 1 <= part <= length:
            raise ValueError(f"anchor of {side[0]}×{side[1]} does not fit in {hw[0]}×{hw[1]}")
    if min(stride) < 1:
        raise ValueError(f"stride must be at least 1, got {stride}")
    return (hw[0] - side[0]) // stride[0] + 1, (hw[1] - side[1]) // stride[1] + 1


def anchor_corners(hw: Pair, side: Pair, stride: Pair) -> list[Pair]:
    """List every anchor's first row and column, in row-major order."""
    down, across = count_anchors(hw, side, stride)
    return [(i * stride[0], j * stride[1]) for i in range(down) for j in range(across)]


def average_anchors(maps: Tensor, side: Pair, stride: Pair) -> Tensor:
    """Average (..., h, w) maps within each anchor: (..., g), in row-major order."""
    h, w = maps.shape[-2:]
    down, across = count_anchors((h, w), side, stride)
    pooled = F.avg_pool2d(maps.reshape(-1, 1, h, w), side, stride)  # (-1, 1, down, across)
    return pooled.reshape(*maps.shape[:-2], down * across)


def corners_of(indices: Tensor, hw: Pair, side: Pair, stride: Pair) -> Tensor:
    """Turn anchor indices (...) into their first rows and columns (..., 2)."""
    across = count_anchors(hw, side, stride)[1]
    rows = indices.div(across, rounding_mode="floor") * stride[0]
    return torch.stack([rows, indices % across * stride[1]], dim=-1)


def blend_anchors(patches: Tensor, weights: Tensor, side: Pair, stride: Pair) -> Tensor:
    """Add up the crops of (b, t, h, w, c) patches at all anchors, times their (b, t, g) weights.

    This is the soft Top-1 of training: (b, t, *side, c). One crop at a time, so nothing of the size
    of all anchors is ever made.
    """
    corners = anchor_corners((patches.shape[2], patches.shape[3]), side, stride)
    shares = weights.to(patches.dtype)[..., None, None, None].unbind(2)
    crops = (patches[:, :, row : row + side[0], left : left + side[1]] for row, left in corners)
    return reduce(torch.add, map(torch.mul, crops, shares))
