"""How a grid of any size is cut into windows, straight and shifted (Video Swin, section 3.2).

Each axis is cut by itself. A shifted axis is rolled so that its last window joins the two ends of
the axis; tokens on the two sides of that seam must not see each other. Windows of one size and one
seam form a group, which shares its biases; a grid has few groups, however many windows.
"""

import math
from dataclasses import dataclass, replace
from itertools import product

THW = tuple[int, int, int]


@dataclass(frozen=True)
class Run:
    """Equal windows side by side on one axis.

    Attributes:
        start: place of the first token.
        size: tokens of one window.
        count: number of windows.
        seam: tokens of a window before the place where the axis' ends meet; 0 means no seam.
    """

    start: int
    size: int
    count: int
    seam: int = 0

    @property
    def span(self) -> slice:
        """Return the tokens of all windows of the run."""
        return slice(self.start, self.start + self.size * self.count)


@dataclass(frozen=True)
class Axis:
    """One axis of a grid, cut into windows.

    Attributes:
        side: tokens, padding included.
        shift: tokens by which the axis is rolled before it is cut.
        runs: the windows, in order, covering the axis.
    """

    side: int
    shift: int
    runs: tuple[Run, ...]


@dataclass(frozen=True)
class WindowLayout:
    """A grid cut into windows: the axes of time, rows and columns."""

    axes: tuple[Axis, Axis, Axis]

    @property
    def thw(self) -> THW:
        """Return the sides of the grid, padding included."""
        t, h, w = (axis.side for axis in self.axes)
        return t, h, w

    @property
    def shift(self) -> THW:
        """Return the roll of each axis."""
        t, h, w = (axis.shift for axis in self.axes)
        return t, h, w

    @property
    def groups(self) -> list[tuple[Run, Run, Run]]:
        """Return every combination of a run in time, in rows and in columns."""
        time, rows, columns = self.axes
        return list(product(time.runs, rows.runs, columns.runs))


def lay_windows(thw: THW, window: THW, *, is_shifted: bool, fit: bool) -> WindowLayout:
    """Cut a grid into windows no larger than `window`.

    Args:
        thw: sides of the grid.
        window: largest sides of a window.
        is_shifted: move the windows by half a window on every axis that has more than one.
        fit: spread a side evenly over the fewest windows that hold it. Otherwise windows keep
            their size and the side is padded to a multiple of it, as in the original.
    """
    t, h, w = (
        cut_axis(side, largest, is_shifted=is_shifted, fit=fit)
        for side, largest in zip(thw, window, strict=True)
    )
    return WindowLayout((t, h, w))


def cut_axis(side: int, largest: int, *, is_shifted: bool, fit: bool) -> Axis:
    """Cut one axis; see `lay_windows`."""
    count = math.ceil(side / largest)
    if count == 1:
        return Axis(side, 0, (Run(0, side, 1),))
    if not fit:
        side = count * largest
    size, longer = divmod(side, count)  # `longer` windows hold one token more than the others
    shift = math.ceil(side / count) // 2 if is_shifted else 0
    runs = [Run(0, size + 1, longer), Run(longer * (size + 1), size, count - longer)]
    if shift:
        runs[1] = replace(runs[1], count=runs[1].count - 1)
        runs.append(Run(side - size, size, 1, seam=size - shift))
    return Axis(side, shift, tuple(run for run in runs if run.count))
