"""From tokens to pixels: which cells of the first grid a token stands for, and their boxes."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass

import torch
from torch import Tensor

from tokenselect.plan import THW
from tokenselect.selectors import Selection


@dataclass(frozen=True)
class KeptPixels:
    """What is left of a clip, in pixels of the model's input."""

    frames: Tensor  # (f,) bool, the frames of which anything is left
    # (f, 4) x0, y0, x1, y1 around what is left of each frame, the ends not included; zeros where
    # nothing is
    boxes: Tensor
    cells: Tensor  # (f, h, w) bool, the cells of the embedding's grid that are left
    rows: Tensor  # (h + 1,) pixels at which the cells' rows begin, and the end of the last
    columns: Tensor  # (w + 1,) likewise

    def enlarge(self, cells: Tensor) -> Tensor:
        """Give each pixel its cell's value: (f, h, w, ...) becomes (f, height, width, ...)."""
        down = cells.repeat_interleave(self.rows.diff(), dim=1)
        return down.repeat_interleave(self.columns.diff(), dim=2)

    @property
    def mask(self) -> Tensor:
        """(f, height, width) bool: the pixels that are left."""
        return self.enlarge(self.cells)

    @property
    def share(self) -> float:
        """Share of the clip's pixels that is left."""
        return float(self.mask.float().mean())

    @property
    def are_full(self) -> Tensor:
        """(f,) bool: the boxes that are filled; all are unless patches were chosen one by one."""
        sides = (self.boxes[:, 2:] - self.boxes[:, :2]).prod(dim=1)
        return self.mask.flatten(1).sum(dim=1) == sides


def to_pixels(is_kept: Tensor, *, stride: THW, video: THW) -> KeptPixels:
    """Turn (t, h, w) cells, `stride` apart, into pixels of the model's input, the `video`."""
    expected = tuple(-(-side // step) for side, step in zip(video, stride, strict=True))
    if is_kept.shape != expected:
        raise ValueError(
            f"a video of {video} at stride {stride} has a grid of {expected}, "
            f"got {tuple(is_kept.shape)}"
        )
    cells = is_kept[torch.arange(video[0]) // stride[0]]  # (f, h, w)
    # where cells begin, and the end: the last one may be cut short
    rows, columns = (
        torch.tensor([*range(0, side, step), side])
        for side, step in zip(video[1:], stride[1:], strict=True)
    )
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


DROPPED = -1


@dataclass(frozen=True)
class Trace:
    """What has become of the cells of the embedding's grid."""

    owner: Tensor  # (t, h, w) number of the token that stands for each cell, or `DROPPED`
    thw: THW  # grid of the tokens; they are numbered in (t, h, w) order

    @classmethod
    def start(cls, thw: THW) -> Trace:
        """Begin behind the embedding: each cell has its own token."""
        return cls(torch.arange(math.prod(thw)).view(thw), thw)

    def pool(self, stride: THW) -> Trace:
        """Follow a block that divides the grid by a stride, rounding up."""
        if max(stride) == 1:
            return self
        sides = list(zip(self.thw, stride, strict=True))
        frames, rows, columns = (-(-side // step) for side, step in sides)  # pooled
        t, h, w = (torch.arange(side) // step for side, step in sides)
        fate = (t[:, None, None] * rows + h[:, None]) * columns + w  # (t, h, w)
        return self._follow(fate.flatten(), (frames, rows, columns))

    def select(self, selection: Selection, clip: int = 0) -> Trace:
        """Follow a site: what one clip of the batch lost there belongs to no token any more."""
        if selection.thw_before != self.thw:
            raise ValueError(
                f"site {selection.site} was given a grid of {selection.thw_before}, but tracing "
                f"arrives there with {self.thw}: the strides are not those of the model"
            )
        kept = selection.patches[clip].cpu()
        fate = torch.full((math.prod(self.thw),), DROPPED)
        fate[kept] = torch.arange(len(kept))
        return self._follow(fate, selection.thw_after)

    def spread(self, values: Tensor) -> Tensor:
        """Give each cell of the first grid the value of its token, NaN where it was dropped."""
        padded = torch.cat([values.flatten().float().cpu(), torch.tensor([math.nan])])
        return padded[self.owner]

    @property
    def is_kept(self) -> Tensor:
        """(t, h, w) bool: cells that some token stands for."""
        return self.owner != DROPPED

    def _follow(self, fate: Tensor, thw: THW) -> Trace:
        """Renumber the tokens by `fate`; the number −1 reads its last entry, dropped for good."""
        return Trace(torch.cat([fate, torch.tensor([DROPPED])])[self.owner], thw)


def trace_sites(
    selections: Mapping[str, Selection], *, thw: THW, strides: Sequence[THW], clip: int = 0
) -> dict[str, tuple[Trace, Trace]]:
    """Follow a clip of a batch from the embedding, of grid `thw`, through all sites.

    Gives the trace before and after the selection by site label, in the order they ran.
    """
    trace = Trace.start(thw)
    traces: dict[str, tuple[Trace, Trace]] = {}
    for block, stride in enumerate(strides):
        here = [s for s in selections.values() if s.site.block == block]
        for selection in sorted(here, key=lambda s: s.site.kind != "T"):
            before, trace = trace, trace.select(selection, clip)
            traces[selection.site.label] = (before, trace)
        trace = trace.pool(stride)
    return traces
