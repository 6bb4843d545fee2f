"""RandAugment for clips: `num_ops` operations of drawn kind, one draw for all frames.

The kinds, ranges and noise are those known as rand-m7-n4-mstd0.5-inc1, with which the paper's
backbones were trained: strengths grow with the magnitude (inc1), which is drawn around its mean
for each operation (mstd0.5), and each operation happens with probability one half.
"""

from __future__ import annotations

import math
from collections.abc import Callable

import torch
import torch.nn.functional as F
from torch import Generator, Tensor

from tokenselect.data import colors
from tokenselect.data.draws import draw_integer, draw_normal, happens

MAX_MAGNITUDE = 10.0
FILL = 124.0  # about the mean of natural pictures, for what a turn or a shift uncovers


def rand_augment(
    frames: Tensor,
    *,
    generator: Generator,
    magnitude: float = 7.0,
    num_ops: int = 4,
    magnitude_std: float = 0.5,
    probability: float = 0.5,
) -> Tensor:
    """Apply `num_ops` operations, drawn with replacement, to (t, 3, h, w) uint8 frames."""
    for _ in range(num_ops):
        operation = OPERATIONS[draw_integer(0, len(OPERATIONS), generator=generator)]
        level = draw_normal(magnitude, magnitude_std, generator=generator)
        sign = 1 if happens(0.5, generator=generator) else -1
        if happens(probability, generator=generator):
            share = min(max(level, 0.0), MAX_MAGNITUDE) / MAX_MAGNITUDE
            frames = operation(frames, share, sign)
    return frames


def warp(frames: Tensor, matrix: list[list[float]]) -> Tensor:
    """Move every frame by one affine map.

    Args:
        frames: (t, 3, h, w) uint8.
        matrix: 2 × 3; maps places in the result, in pixels from the middle (x, y, 1), to places
            in the source.
    """
    t, c, h, w = frames.shape
    half = torch.tensor([w / 2, h / 2])
    theta = torch.tensor(matrix)  # (2, 3), in pixels; affine_grid wants shares of the half size
    theta = torch.cat([theta[:, :2] * half[None], theta[:, 2:]], dim=1) / half[:, None]
    grid = F.affine_grid(theta[None], [1, 1, h, w], align_corners=False)
    shifted = frames.reshape(1, t * c, h, w).float() - FILL  # zero padding becomes FILL
    moved = F.grid_sample(shifted, grid, mode="bilinear", align_corners=False)
    return (moved + FILL).round_().clamp_(0, 255).to(torch.uint8).view(t, c, h, w)


def rotate(frames: Tensor, share: float, sign: int) -> Tensor:
    """Turn by up to 30 degrees."""
    angle = math.radians(30 * share * sign)
    cos, sin = math.cos(angle), math.sin(angle)
    return warp(frames, [[cos, -sin, 0], [sin, cos, 0]])


def shear_x(frames: Tensor, share: float, sign: int) -> Tensor:
    """Shear rows by up to 0.3."""
    return warp(frames, [[1, 0.3 * share * sign, 0], [0, 1, 0]])


def shear_y(frames: Tensor, share: float, sign: int) -> Tensor:
    """Shear columns by up to 0.3."""
    return warp(frames, [[1, 0, 0], [0.3 * share * sign, 1, 0]])


def translate_x(frames: Tensor, share: float, sign: int) -> Tensor:
    """Shift sideways by up to 0.45 of the width."""
    return warp(frames, [[1, 0, 0.45 * share * sign * frames.shape[-1]], [0, 1, 0]])


def translate_y(frames: Tensor, share: float, sign: int) -> Tensor:
    """Shift up or down by up to 0.45 of the height."""
    return warp(frames, [[1, 0, 0], [0, 1, 0.45 * share * sign * frames.shape[-2]]])


def factor(share: float, sign: int) -> float:
    """Return the strength of a colour change: 1 for none, from 0.1 to 1.9."""
    return max(0.1, 1 + 0.9 * share * sign)


OPERATIONS: list[Callable[[Tensor, float, int], Tensor]] = [
    lambda frames, share, sign: colors.autocontrast(frames),
    lambda frames, share, sign: colors.equalize(frames),
    lambda frames, share, sign: colors.invert(frames),
    lambda frames, share, sign: colors.posterize(frames, 4 - int(4 * share)),
    lambda frames, share, sign: colors.solarize(frames, 256 - int(256 * share)),
    lambda frames, share, sign: colors.solarize_add(frames, int(110 * share)),
    lambda frames, share, sign: colors.adjust_saturation(frames, factor(share, sign)),
    lambda frames, share, sign: colors.adjust_contrast(frames, factor(share, sign)),
    lambda frames, share, sign: colors.adjust_brightness(frames, factor(share, sign)),
    lambda frames, share, sign: colors.adjust_sharpness(frames, factor(share, sign)),
    rotate,
    shear_x,
    shear_y,
    translate_x,
    translate_y,
]
