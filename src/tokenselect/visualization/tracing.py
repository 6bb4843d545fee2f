"""Which cells of the first grid a token stands for, traced through pooling and selection.

A token stands for its cell: the box of pixels of the patch stride, clipped at the border. That is
not its receptive field, which overlaps those of its neighbours. Where a block pools or merges by a
stride s, token j stands for the tokens s·j, …, s·j + s − 1 of before; on a side that s does not
divide, the last stands for those that are left. So no two tokens ever stand for the same pixel,
and without selection they cover the picture.
"""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass

import torch
from torch import Tensor

from tokenselect.ops.pick import frame_patches, region_patches
from tokenselect.plan import THW
from tokenselect.selectors import Selection

DROPPED = -1


@dataclass(frozen=True)
class Trace:
    """What has become of the cells of the embedding's grid.

    Attributes:
        owner: (t, h, w) number of the token that stands for each cell, or `DROPPED`.
        thw: grid of the tokens; they are numbered in (t, h, w) order.
    """

    owner: Tensor
    thw: THW

    @classmethod
    def start(cls, thw: THW) -> Trace:
        """Begin behind the embedding: each cell has its own token."""
        return cls(torch.arange(math.prod(thw)).view(thw), thw)

    def pool(self, stride: THW) -> Trace:
        """Follow a block that divides the grid by a stride, rounding up."""
        if max(stride) == 1:
            return self
        pooled = tuple(-(-side // step) for side, step in zip(self.thw, stride, strict=True))
        sides = zip(self.thw, stride, strict=True)
        t, h, w = (torch.arange(side) // step for side, step in sides)
        fate = (t[:, None, None] * pooled[1] + h[:, None]) * pooled[2] + w  # (t, h, w)
        return self._follow(fate.flatten(), (pooled[0], pooled[1], pooled[2]))

    def select(self, selection: Selection, clip: int = 0) -> Trace:
        """Follow a site: what one clip of the batch lost there belongs to no token any more."""
        if selection.thw_before != self.thw:
            raise ValueError(
                f"site {selection.site} was given a grid of {selection.thw_before}, but tracing "
                f"arrives there with {self.thw}: the strides are not those of the model"
            )
        kept = kept_patches(selection, clip)
        fate = torch.full((math.prod(self.thw),), DROPPED)
        fate[kept] = torch.arange(len(kept))
        return self._follow(fate, selection.thw_after)

    def spread(self, values: Tensor) -> Tensor:
        """Give each cell the value of its token, NaN where it was dropped.

        Args:
            values: one a token, in (t, h, w) order, of any shape.

        Returns:
            (t, h, w) of the embedding's grid.
        """
        padded = torch.cat([values.flatten().float().cpu(), torch.tensor([math.nan])])
        return padded[self.owner]

    @property
    def is_kept(self) -> Tensor:
        """(t, h, w) bool: cells that some token stands for."""
        return self.owner != DROPPED

    def _follow(self, fate: Tensor, thw: THW) -> Trace:
        """Renumber the tokens by `fate`; the number −1 reads its last entry, dropped for good."""
        return Trace(torch.cat([fate, torch.tensor([DROPPED])])[self.owner], thw)


def kept_patches(selection: Selection, clip: int = 0) -> Tensor:
    """List the patches one clip kept at a site, in the order of the new grid."""
    _, h, w = selection.thw_before
    if selection.corners is not None:
        corners = selection.corners[clip : clip + 1].cpu()
        _, *side = selection.thw_after
        return region_patches(corners, (h, w), (side[0], side[1]))[0]
    indices = selection.indices[clip].cpu()
    if indices.ndim == 1:
        return frame_patches(indices[None], h * w)[0]
    starts = torch.arange(len(indices))[:, None] * (h * w)
    return (indices + starts).flatten()  # patches one by one


def trace_sites(
    selections: Mapping[str, Selection], *, thw: THW, strides: Sequence[THW], clip: int = 0
) -> dict[str, tuple[Trace, Trace]]:
    """Follow a clip from the embedding through all sites.

    Args:
        selections: what every site kept, as `record_selections` gives it.
        thw: the grid that the embedding made.
        strides: of each block, by which it divides the grid that it is given.
        clip: which of the batch.

    Returns:
        Site label to the trace before and after the selection, in the order they ran.
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
