"""Where in the original picture a view of the model lies: resizing and cropping, undone."""

from __future__ import annotations

from dataclasses import dataclass

import torch
from torch import Tensor

from tokenselect.data.transforms import Box, crop, resize

Size = tuple[int, int]  # height, width


@dataclass(frozen=True)
class View:
    """One crop of a resized video.

    Attributes:
        source: height and width of the video as it is shown.
        resized: height and width before the crop.
        box: top, left, height and width of the crop.
    """

    source: Size
    resized: Size
    box: Box

    @property
    def size(self) -> Size:
        """Height and width of what the model sees."""
        return self.box[2:]

    def cut(self, frames: Tensor) -> Tensor:
        """Resize and crop (t, 3, h, w) uint8 frames of the video."""
        if tuple(frames.shape[-2:]) != self.source:
            raise ValueError(f"frames must be {self.source}, got {tuple(frames.shape[-2:])}")
        return crop(resize(frames, self.resized), self.box)

    def to_source(self, boxes: Tensor) -> Tensor:
        """Map (..., 4) boxes x0, y0, x1, y1 of the view to the video, as float pixels."""
        top, left, _, _ = self.box
        down, across = (self.source[i] / self.resized[i] for i in (0, 1))
        shift = torch.tensor([left, top, left, top], dtype=torch.float64)
        scale = torch.tensor([across, down, across, down], dtype=torch.float64)
        return (boxes.to(torch.float64) + shift) * scale


def place_views(
    source: Size, size: Size, *, short_side: int | None = None, crops: int = 1
) -> list[View]:
    """Place the views as in testing: resized to cover `size`, cut along the side with most room.

    Args:
        source: height and width of the video.
        size: height and width that the model sees.
        short_side: of the video before cropping, if larger than what covers `size`.
        crops: 1, in the middle, or several, spread from end to end.
    """
    cover = max(size[0] / source[0], size[1] / source[1])
    scale = max(cover, (short_side or 0) / min(source))
    resized = (
        max(size[0], round(source[0] * scale)),
        max(size[1], round(source[1] * scale)),
    )
    room = (resized[0] - size[0], resized[1] - size[1])
    middle = (room[0] // 2, room[1] // 2)
    if crops == 1:
        return [View(source, resized, (*middle, *size))]
    views = []
    for number in range(crops):
        share = number / (crops - 1)
        corner = (
            (middle[0], round(room[1] * share))
            if room[1] >= room[0]
            else (round(room[0] * share), middle[1])
        )
        views.append(View(source, resized, (*corner, *size)))
    return views
