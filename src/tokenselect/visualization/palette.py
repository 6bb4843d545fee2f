"""Colours and letters of the pictures."""

from __future__ import annotations

import torch
from PIL import ImageFont
from torch import Tensor

Colour = tuple[int, int, int]

PAPER: Colour = (255, 255, 255)
INK: Colour = (32, 33, 36)
FAINT: Colour = (120, 124, 130)
LINE: Colour = (214, 217, 222)
KEPT: Colour = (255, 159, 10)  # what stays: boxes and bars
GONE: Colour = (190, 194, 200)

# Low to high; lightness rises all the way, so it reads in grey and without red or green.
HEAT: tuple[Colour, ...] = (
    (13, 8, 64),
    (84, 19, 120),
    (166, 39, 109),
    (224, 82, 68),
    (250, 150, 40),
    (252, 240, 140),
)


def heat_colours(values: Tensor) -> Tensor:
    """Map (...) values in [0, 1] to (..., 3) colours in [0, 255]; NaN gives black."""
    ramp = torch.tensor(HEAT, dtype=torch.float32)
    place = values.nan_to_num(0.0).clamp(0, 1) * (len(ramp) - 1)
    low = place.floor().long().clamp(max=len(ramp) - 2)
    share = (place - low)[..., None]
    colours = ramp[low] * (1 - share) + ramp[low + 1] * share
    return colours * (~values.isnan())[..., None]


def letters(size: float) -> ImageFont.FreeTypeFont | ImageFont.ImageFont:
    """Give the font that comes with Pillow."""
    return ImageFont.load_default(size=size)
