"""How a grid of any size is cut into windows, straight and shifted (Video Swin, section 3.2).

Each axis is cut by itself. On a shifted axis the last window joins the axis' two ends; its tokens
on one side of that seam do not see those on the other. Windows of one shape share their biases,
and a grid has few shapes, however many windows: so tokens are put in the order of windows, shape by
shape, by one index that does the work of rolling and of partitioning.
"""

import math
from dataclasses import dataclass
from itertools import product

import torch
from torch import Tensor

from tokenselect.plan import THW


@dataclass(frozen=True)
class Cut:
    """The windows of one size on one axis."""

    size: int  # tokens of a window
    seam: int  # tokens of a window that come before its seam; 0 without a seam
    # place of each window's first token; beyond the axis' end it goes on at its start
    starts: tuple[int, ...]


@dataclass(frozen=True)
class WindowShape:
    """The windows of one shape: size and seam in time, rows and columns, and their number."""

    size: THW
    seam: THW
    count: int

    @property
    def tokens(self) -> int:
        """Return the tokens of one window."""
        return math.prod(self.size)


@dataclass(frozen=True)
class WindowLayout:
    """A grid cut into windows: its sides and the cuts of each axis."""

    thw: THW
    cuts: tuple[list[Cut], list[Cut], list[Cut]]

    def shapes(self, batch: int) -> list[WindowShape]:
        """Return the shapes of a batch's windows, in the order of `token_order`."""
        shapes = []
        for time, rows, columns in product(*self.cuts):
            size = time.size, rows.size, columns.size
            seam = time.seam, rows.seam, columns.seam
            count = len(time.starts) * len(rows.starts) * len(columns.starts)
            shapes.append(WindowShape(size, seam, batch * count))
        return shapes

    def token_order(self, batch: int, device: torch.device) -> Tensor:
        """Return the (b·t·h·w,) places of tokens: shape by shape, clip by clip, window by window.

        A place counts through a batch of grids as it lies in memory.
        """
        t, h, w = self.thw
        clips = torch.arange(batch, device=device) * (t * h * w)
        axes = enumerate(zip(self.cuts, self.thw, (h * w, w, 1), strict=True))
        times, rows, columns = (
            [_places(cut, side, step=step, axis=axis, device=device) for cut in cuts]
            for axis, (cuts, side, step) in axes
        )
        # A clip's places first: OpenVINO adds tensors of more than 6 dimensions wrongly.
        places = [(i + j + k).flatten() for i, j, k in product(times, rows, columns)]
        return torch.cat([(clips[:, None] + place).flatten() for place in places])


def lay_windows(thw: THW, window: THW, *, is_shifted: bool) -> WindowLayout:
    """Cut a grid into windows no larger than `window`; see `cut_axis`."""
    sides = zip(thw, window, strict=True)
    t, h, w = (cut_axis(side, largest, is_shifted=is_shifted) for side, largest in sides)
    return WindowLayout(thw, (t, h, w))


def cut_axis(side: int, largest: int, *, is_shifted: bool) -> list[Cut]:
    """Spread a side evenly over the fewest windows that hold it.

    Args:
        side: tokens of the axis.
        largest: most tokens of a window; where it divides the side, all windows have this size.
        is_shifted: move the windows by half a window, unless there is only one.
    """
    count = math.ceil(side / largest)
    size, longer = divmod(side, count)  # `longer` windows hold one token more than the others
    sizes = [size + 1] * longer + [size] * (count - longer)
    start = sizes[0] // 2 if is_shifted and count > 1 else 0
    starts: dict[tuple[int, int], list[int]] = {}
    for size in sizes:
        seam = side - start if start < side < start + size else 0
        starts.setdefault((size, seam), []).append(start)
        start += size
    return [Cut(size, seam, tuple(places)) for (size, seam), places in starts.items()]


def _places(cut: Cut, side: int, *, step: int, axis: int, device: torch.device) -> Tensor:
    """Return a cut's places on an axis whose neighbours lie `step` tokens apart.

    They are shaped for a sum over the axes, which is (windows in time, in rows, in columns, tokens
    in time, in rows, in columns).
    """
    places = [(start + i) % side * step for start in cut.starts for i in range(cut.size)]
    shape = [1] * 6
    shape[axis], shape[axis + 3] = len(cut.starts), cut.size
    return torch.tensor(places, device=device).view(shape)
