"""RandAugment for clips: `num_ops` operations of drawn kind, one draw for all frames.

The kinds, ranges and noise are those known as rand-m7-n4-mstd0.5-inc1, with which the paper's
backbones were trained: strengths grow with the magnitude (inc1), which is drawn around its mean
for each operation (mstd0.5), and each operation happens with probability one half. Pillow does the
operations; the draws are ours, because they must follow from one generator.
"""

from __future__ import annotations

from collections.abc import Callable

import numpy as np
import torch
from PIL import Image, ImageEnhance, ImageOps
from torch import Generator, Tensor

from tokenselect.data.draws import draw_integer, draw_normal, happens

MAX_MAGNITUDE = 10.0
FILL = (124, 124, 124)  # about the mean of natural pictures, for what a turn or a shift uncovers

Operation = Callable[[Image.Image, float, int], Image.Image]


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
    chosen: list[tuple[Operation, float, int]] = []
    for _ in range(num_ops):
        operation = OPERATIONS[draw_integer(0, len(OPERATIONS), generator=generator)]
        level = draw_normal(magnitude, magnitude_std, generator=generator)
        sign = 1 if happens(0.5, generator=generator) else -1
        if happens(probability, generator=generator):
            share = min(max(level, 0.0), MAX_MAGNITUDE) / MAX_MAGNITUDE
            chosen.append((operation, share, sign))
    return change_frames(frames, chosen) if chosen else frames


def change_frames(frames: Tensor, operations: list[tuple[Operation, float, int]]) -> Tensor:
    """Apply (operation, share, sign), one after another, to every frame."""
    changed = []
    for pixels in frames.permute(0, 2, 3, 1).contiguous().numpy():
        picture = Image.fromarray(pixels)
        for operation, share, sign in operations:
            picture = operation(picture, share, sign)
        changed.append(np.asarray(picture))
    return torch.from_numpy(np.stack(changed)).permute(0, 3, 1, 2).contiguous()


def solarize_add(picture: Image.Image, amount: int, threshold: int = 128) -> Image.Image:
    """Brighten the values below the threshold by at most 255 − threshold."""
    added = min(amount, 255 - threshold)
    levels = [level + added if level < threshold else level for level in range(256)]
    return picture.point(levels * 3)


def warp(picture: Image.Image, xx: float, xy: float, yx: float, yy: float) -> Image.Image:
    """Map places in the result, measured from the middle, to xx·x + xy·y and yx·x + yy·y."""
    x, y = picture.width / 2, picture.height / 2
    return affine(picture, (xx, xy, x - xx * x - xy * y, yx, yy, y - yx * x - yy * y))


def affine(picture: Image.Image, matrix: tuple[float, ...]) -> Image.Image:
    """Take each pixel from where the affine `matrix` maps it, `FILL` from outside."""
    return picture.transform(
        picture.size, Image.Transform.AFFINE, matrix, Image.Resampling.BILINEAR, fillcolor=FILL
    )


def color_factor(share: float, sign: int) -> float:
    """Return the strength of a colour change: 1 for none, from 0.1 to 1.9."""
    return max(0.1, 1 + 0.9 * share * sign)


def enhance(kind: Callable[[Image.Image], ImageEnhance._Enhance]) -> Operation:
    """Make an operation of one of Pillow's enhancers."""
    return lambda picture, share, sign: kind(picture).enhance(color_factor(share, sign))


# Each takes a picture, the strength as a share of the strongest, and a sign.
OPERATIONS: list[Operation] = [
    lambda picture, share, sign: ImageOps.autocontrast(picture),
    lambda picture, share, sign: ImageOps.equalize(picture),
    lambda picture, share, sign: ImageOps.invert(picture),
    lambda picture, share, sign: ImageOps.posterize(picture, 4 - int(4 * share)),
    lambda picture, share, sign: ImageOps.solarize(picture, 256 - int(256 * share)),
    lambda picture, share, sign: solarize_add(picture, int(110 * share)),
    enhance(ImageEnhance.Color),
    enhance(ImageEnhance.Contrast),
    enhance(ImageEnhance.Brightness),
    enhance(ImageEnhance.Sharpness),
    lambda picture, share, sign: picture.rotate(
        30 * share * sign, Image.Resampling.BILINEAR, fillcolor=FILL
    ),
    lambda picture, share, sign: warp(picture, 1, 0.3 * share * sign, 0, 1),  # shear rows
    lambda picture, share, sign: warp(picture, 1, 0, 0.3 * share * sign, 1),  # shear columns
    lambda picture, share, sign: affine(
        picture, (1, 0, 0.45 * share * sign * picture.width, 0, 1, 0)
    ),
    lambda picture, share, sign: affine(
        picture, (1, 0, 0, 0, 1, 0.45 * share * sign * picture.height)
    ),
]
