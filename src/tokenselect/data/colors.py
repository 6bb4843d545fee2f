"""Colour operations on (t, 3, h, w) uint8 frames, each equal to Pillow's up to rounding.

Statistics such as an average or a histogram are those of each frame; what is drawn (the factor,
the threshold) is the same for all frames.
"""

from __future__ import annotations

import torch
import torch.nn.functional as F
from torch import Tensor

LUMA = (0.299, 0.587, 0.114)


def to_gray(frames: Tensor) -> Tensor:
    """Return the (t, 1, h, w) float brightness of each pixel."""
    red, green, blue = frames.float().unbind(dim=1)
    return (LUMA[0] * red + LUMA[1] * green + LUMA[2] * blue).unsqueeze(1)


def blend(frames: Tensor, other: Tensor | float, factor: float) -> Tensor:
    """Go from `other` (factor 0) to `frames` (1) and beyond, cut to whole numbers of 0 … 255."""
    mixed = other + factor * (frames.float() - other)
    return mixed.clamp_(0, 255).to(torch.uint8)


def adjust_brightness(frames: Tensor, factor: float) -> Tensor:
    """Blend with black."""
    return look_up(frames, blend(torch.arange(256), 0.0, factor))


def adjust_contrast(frames: Tensor, factor: float) -> Tensor:
    """Blend with the average brightness of each frame."""
    average = to_gray(frames).mean(dim=(1, 2, 3), keepdim=True).round()  # (t, 1, 1, 1)
    return blend(frames, average, factor)


def adjust_saturation(frames: Tensor, factor: float) -> Tensor:
    """Blend with the gray picture."""
    return blend(frames, to_gray(frames).round_(), factor)


def adjust_sharpness(frames: Tensor, factor: float) -> Tensor:
    """Blend with a smoothed picture; the border of one pixel stays."""
    if min(frames.shape[-2:]) < 3:
        return frames
    kernel = torch.ones(3, 3)
    kernel[1, 1] = 5
    weight = (kernel / kernel.sum()).expand(3, 1, 3, 3)
    smooth = frames.float()
    smooth[..., 1:-1, 1:-1] = F.conv2d(frames.float(), weight, groups=3)
    return blend(frames, smooth.round_(), factor)


def invert(frames: Tensor) -> Tensor:
    """Turn dark to bright."""
    return 255 - frames


def posterize(frames: Tensor, bits: int) -> Tensor:
    """Keep the highest `bits` of each value."""
    return frames & (256 - (1 << (8 - bits)))


def solarize(frames: Tensor, threshold: int) -> Tensor:
    """Invert the values at or above the threshold."""
    levels = torch.arange(256)
    return look_up(frames, torch.where(levels < threshold, levels, 255 - levels))


def solarize_add(frames: Tensor, amount: int, threshold: int = 128) -> Tensor:
    """Brighten the values below the threshold."""
    levels = torch.arange(256)
    return look_up(frames, torch.where(levels < threshold, levels + amount, levels).clamp(max=255))


def autocontrast(frames: Tensor) -> Tensor:
    """Stretch each channel of each frame to 0 … 255."""
    values = frames.flatten(2)
    low = values.amin(dim=2).float()[..., None]  # (t, 3, 1)
    high = values.amax(dim=2).float()[..., None]
    scale = 255 / (high - low).clamp(min=1)
    stretched = ((torch.arange(256.0) - low) * scale).floor().clamp_(0, 255)  # (t, 3, 256)
    tables = torch.where(high > low, stretched, torch.arange(256.0))
    return look_up_each(frames, tables.to(torch.uint8))


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
    return look_up_each(frames, tables.to(torch.uint8))


def look_up(frames: Tensor, table: Tensor) -> Tensor:
    """Replace each value by its entry in a table of 256."""
    return table.to(torch.uint8)[frames.int()]


def look_up_each(frames: Tensor, tables: Tensor) -> Tensor:
    """Replace each value by its entry in the (t, 3, 256) table of its frame and channel."""
    return tables.gather(2, frames.flatten(2).long()).view(frames.shape)
