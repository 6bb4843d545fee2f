"""Videos and images of different sizes in one sequence, and what is left of each."""

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from functools import cached_property

import torch
import torch.nn.functional as F
from torch import Tensor

from tokenselect.plan import THW


@dataclass(frozen=True)
class Packed:
    """The tokens of several videos, one after the other; an image is a video of one frame.

    The sequence holds each video in raster order or, with `window`, window by window within each
    frame. It knows nothing of the tokens' values.
    """

    whole: tuple[THW, ...]  # the grid of each video before any selection
    thws: tuple[THW, ...]  # what is left of them, as grids
    # (k,) the tokens that are left of each video, counted in its whole grid, rising
    places: tuple[Tensor, ...]
    window: int | None = None  # rows and columns of a window, or None for raster order

    @classmethod
    def of(
        cls, thws: Sequence[THW], *, device: torch.device, window: int | None = None
    ) -> "Packed":
        """Begin with all tokens of videos of these grids."""
        places = tuple(torch.arange(t * h * w, device=device) for t, h, w in thws)
        return cls(tuple(thws), tuple(thws), places, window)

    @property
    def lengths(self) -> list[int]:
        """How many tokens are left of each video."""
        return [len(places) for places in self.places]

    @property
    def total(self) -> int:
        """How many tokens there were at first."""
        return sum(t * h * w for t, h, w in self.whole)

    @property
    def is_whole(self) -> bool:
        """Nothing was dropped."""
        return len(self) == self.total

    def __len__(self) -> int:
        return sum(self.lengths)

    @cached_property
    def frame_ids(self) -> Tensor:
        """(n,) the frame of each token, counted through all videos, in the sequence's order."""
        return self._numbered(lambda places, thw: places // (thw[1] * thw[2]))

    @cached_property
    def window_ids(self) -> Tensor:
        """(n,) the window of each token, counted through all videos, in the sequence's order."""
        return self._numbered(self._windows)

    @cached_property
    def order(self) -> Tensor:
        """(n,) which token, counted video by video in raster order, stands at each place."""
        parts, start = [], 0
        for places, thw in zip(self.places, self.whole, strict=True):
            order = torch.arange(len(places), device=places.device)
            if self.window is not None:
                order = self._windows(places, thw).argsort(stable=True)
            parts.append(order + start)
            start += len(places)
        return torch.cat(parts)

    @cached_property
    def rows(self) -> Tensor:
        """(n,) where the tokens stood in the sequence of all tokens, in the sequence's order."""
        full = Packed.of(self.whole, device=self.order.device, window=self.window)
        return full.order.argsort()[self.indices].sort().values

    @cached_property
    def indices(self) -> Tensor:
        """(n,) the tokens that are left, counted through the whole grids in raster order."""
        sizes = [t * h * w for t, h, w in self.whole]
        starts = [sum(sizes[:index]) for index in range(len(sizes))]
        return torch.cat([p + s for p, s in zip(self.places, starts, strict=True)])

    @property
    def mask(self) -> Tensor:
        """(all,) true for tokens that are left, counted through the whole grids."""
        mask = torch.zeros(self.total, dtype=torch.bool, device=self.indices.device)
        return mask.index_fill(0, self.indices, True)

    def bounds(self, ids: Tensor, unit: int) -> Tensor:
        """Give where each run of equal ids begins and ends, in units of `unit` patches a token."""
        counts = torch.unique_consecutive(ids, return_counts=True)[1]
        return F.pad((counts * unit).cumsum(0, dtype=torch.int32), (1, 0))

    def _windows(self, places: Tensor, thw: THW) -> Tensor:
        """Number the windows of one video in the order of its sequence."""
        assert self.window is not None
        _, h, w = thw
        frame, row, column = places // (h * w), places // w % h, places % w
        down, across = -(-h // self.window), -(-w // self.window)
        return (frame * down + row // self.window) * across + column // self.window

    def _numbered(self, number: Callable[[Tensor, THW], Tensor]) -> Tensor:
        parts, start = [], 0
        for places, thw in zip(self.places, self.whole, strict=True):
            parts.append(number(places, thw) + start)
            start += thw[0] * thw[1] * thw[2]  # more than there are frames or windows
        return torch.cat(parts)[self.order]
