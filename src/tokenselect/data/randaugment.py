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

from tokenselect.data.draws import draw_integer, draw_normal, happens

LUMA = (0.299, 0.587, 0.114)


def black(values: Tensor) -> Tensor:
    """Return what a picture without brightness holds."""
    return torch.zeros(1)


def average_gray(values: Tensor) -> Tensor:
    """Return the (t, 1, 1, 1) average brightness of each frame, what is left without contrast."""
    channels = values.float().mean(dim=(2, 3))  # (t, 3)
    return (channels @ torch.tensor(LUMA)).round_().view(-1, 1, 1, 1)


def gray(values: Tensor) -> Tensor:
    """Return the (t, 1, h, w) brightness of each pixel, what is left without saturation."""
    t, _, h, w = values.shape
    mixed = torch.tensor([LUMA]) @ values.float().reshape(t, 3, h * w)  # (t, 1, h·w)
    return mixed.round_().view(t, 1, h, w)


def blend_(values: Tensor, other: Tensor, factor: float) -> Tensor:
    """Turn float values, in place, to what lies between `other` (0) and them (1), or beyond."""
    return values.mul_(factor).add_(other * (1 - factor)).clamp_(0, 255)


def adjust_brightness(frames: Tensor, factor: float) -> Tensor:
    """Blend with black."""
    return blend_(frames.float(), black(frames), factor).to(torch.uint8)


def adjust_contrast(frames: Tensor, factor: float) -> Tensor:
    """Blend with the average brightness of each frame."""
    return blend_(frames.float(), average_gray(frames), factor).to(torch.uint8)


def adjust_saturation(frames: Tensor, factor: float) -> Tensor:
    """Blend with the gray picture."""
    return blend_(frames.float(), gray(frames), factor).to(torch.uint8)


def adjust_sharpness(frames: Tensor, factor: float) -> Tensor:
    """Blend with a smoothed picture; the border of one pixel stays."""
    if min(frames.shape[-2:]) < 3:
        return frames
    values = frames.float()
    rows = values[..., :-2, :] + values[..., 1:-1, :] + values[..., 2:, :]
    box = rows[..., :-2] + rows[..., 1:-1] + rows[..., 2:]  # sum of 3 × 3
    smooth = values.clone()
    inner = smooth[..., 1:-1, 1:-1]
    inner.mul_(4).add_(box).div_(13).round_()  # the middle counts five times
    return blend_(values, smooth, factor).to(torch.uint8)


def invert(frames: Tensor) -> Tensor:
    """Turn dark to bright."""
    return 255 - frames


def posterize(frames: Tensor, bits: int) -> Tensor:
    """Keep the highest `bits` of each value."""
    return frames & (256 - (1 << (8 - bits)))


def solarize(frames: Tensor, threshold: int) -> Tensor:
    """Invert the values at or above the threshold."""
    if threshold > 255:  # a comparison would wrap it to 0
        return frames
    return frames ^ (frames >= threshold).to(torch.uint8).mul_(255)  # x ^ 255 is 255 − x


def solarize_add(frames: Tensor, amount: int, threshold: int = 128) -> Tensor:
    """Brighten the values below the threshold by at most 255 − threshold."""
    return frames + (frames < threshold).to(torch.uint8).mul_(min(amount, 255 - threshold))


def autocontrast(frames: Tensor) -> Tensor:
    """Stretch each channel of each frame to 0 … 255."""
    low = frames.amin(dim=(2, 3), keepdim=True)  # (t, 3, 1, 1)
    width = (frames.amax(dim=(2, 3), keepdim=True) - low).float()
    scale = torch.where(width > 0, 255 / width.clamp(min=1), 1.0)
    stretched = frames.float().sub_(torch.where(width > 0, low, 0)).mul_(scale)
    return stretched.clamp_(0, 255).to(torch.uint8)


def equalize(frames: Tensor) -> Tensor:
    """Give each channel of each frame an even histogram."""
    t = len(frames)
    channel = torch.arange(3 * t).view(t, 3, 1, 1) * 256
    counts = torch.bincount((frames.long() + channel).flatten(), minlength=768 * t)
    counts = counts.view(t, 3, 256)
    highest = 255 - counts.flip(2).gt(0).int().argmax(dim=2, keepdim=True)  # level used last
    step = (counts.sum(dim=2, keepdim=True) - counts.gather(2, highest)) // 255  # (t, 3, 1)
    before = counts.cumsum(dim=2) - counts
    even = ((before + step // 2) // step.clamp(min=1)).clamp(max=255)
    tables = torch.where(step > 0, even, torch.arange(256))
    return tables.to(torch.uint8).gather(2, frames.flatten(2).long()).view(frames.shape)


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
    lambda frames, share, sign: autocontrast(frames),
    lambda frames, share, sign: equalize(frames),
    lambda frames, share, sign: invert(frames),
    lambda frames, share, sign: posterize(frames, 4 - int(4 * share)),
    lambda frames, share, sign: solarize(frames, 256 - int(256 * share)),
    lambda frames, share, sign: solarize_add(frames, int(110 * share)),
    lambda frames, share, sign: adjust_saturation(frames, factor(share, sign)),
    lambda frames, share, sign: adjust_contrast(frames, factor(share, sign)),
    lambda frames, share, sign: adjust_brightness(frames, factor(share, sign)),
    lambda frames, share, sign: adjust_sharpness(frames, factor(share, sign)),
    rotate,
    shear_x,
    shear_y,
    translate_x,
    translate_y,
]
