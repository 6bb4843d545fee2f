"""Colour operations on (t, 3, h, w) uint8 frames, each equal to Pillow's up to rounding.

Statistics such as an average or a histogram are those of each frame; what is drawn (the factor,
the threshold) is the same for all frames.
"""

from __future__ import annotations

import torch
from torch import Tensor

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
