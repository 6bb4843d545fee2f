"""From cells of the token grid to frames and boxes of pixels."""

from __future__ import annotations

from dataclasses import dataclass

import torch
from torch import Tensor

from tokenselect.plan import THW


@dataclass(frozen=True)
class KeptPixels:
    """What is left of a clip, in pixels of the model's input.

    Attributes:
        frames: (f,) bool, the frames of which anything is left.
        boxes: (f, 4) x0, y0, x1, y1 around what is left of each frame, the ends not included;
            zeros where nothing is.
        cells: (f, h, w) bool, the cells of the embedding's grid that are left.
        rows: (h + 1,) pixels at which the cells' rows begin, and the end of the last.
        columns: (w + 1,) likewise.
    """

    frames: Tensor
    boxes: Tensor
    cells: Tensor
    rows: Tensor
    columns: Tensor

    @property
    def mask(self) -> Tensor:
        """(f, height, width) bool: the pixels that are left."""
        down = self.cells.repeat_interleave(self.rows.diff(), dim=1)
        return down.repeat_interleave(self.columns.diff(), dim=2)

    @property
    def share(self) -> float:
        """Share of the clip's pixels that is left."""
        return float(self.mask.float().mean())

    @property
    def are_boxes_full(self) -> bool:
        """Tell whether each box is filled: so it is unless patches were chosen one by one."""
        sides = (self.boxes[:, 2:] - self.boxes[:, :2]).prod(dim=1)
        return bool((self.mask.flatten(1).sum(dim=1) == sides).all())


def cell_edges(length: int, stride: int) -> Tensor:
    """Give the pixels at which cells begin, and the end: the last cell may be cut short."""
    starts = torch.arange(0, length, stride)
    return torch.cat([starts, torch.tensor([length])])


def frame_of_cell(frames: int, stride: int) -> Tensor:
    """Give the (frames,) numbers of the token frames that stand for each frame of the clip."""
    return torch.arange(frames) // stride


def to_pixels(is_kept: Tensor, *, stride: THW, video: THW) -> KeptPixels:
    """Turn cells into pixels.

    Args:
        is_kept: (t, h, w) bool, cells of the embedding's grid.
        stride: frames, rows and columns from one cell to the next.
        video: frames, height and width of the model's input.
    """
    expected = tuple(-(-side // step) for side, step in zip(video, stride, strict=True))
    if is_kept.shape != expected:
        raise ValueError(
            f"a video of {video} at stride {stride} has a grid of {expected}, "
            f"got {tuple(is_kept.shape)}"
        )
    cells = is_kept[frame_of_cell(video[0], stride[0])]  # (f, h, w)
    rows, columns = cell_edges(video[1], stride[1]), cell_edges(video[2], stride[2])
    top, bottom = _ends(cells.any(dim=2), rows)
    left, right = _ends(cells.any(dim=1), columns)
    boxes = torch.stack([left, top, right, bottom], dim=1)  # (f, 4)
    frames = cells.any(dim=(1, 2))
    return KeptPixels(frames, boxes * frames[:, None], cells, rows, columns)


def _ends(is_used: Tensor, edges: Tensor) -> tuple[Tensor, Tensor]:
    """Give the first pixel of the first used cell and the end of the last: (f,) each."""
    numbers = torch.arange(is_used.shape[1])
    first = numbers.expand_as(is_used).masked_fill(~is_used, len(numbers) - 1).amin(dim=1)
    last = numbers.expand_as(is_used).masked_fill(~is_used, 0).amax(dim=1)
    return edges[first], edges[last + 1]
