"""Accuracy against cost, one line a method (paper, Figure 3)."""

from __future__ import annotations

import importlib.util
from collections.abc import Sequence
from pathlib import Path

from tokenselect.comparison.lines import DENSE, ORACLE, START
from tokenselect.comparison.summary import Row

BOUNDS = {DENSE: "D", START: "*", ORACLE: "^"}  # markers of the lines that are no method


def can_draw() -> bool:
    """Tell whether matplotlib is there."""
    return importlib.util.find_spec("matplotlib") is not None


def draw_figure(rows: Sequence[Row], path: Path, *, title: str) -> None:
    """Draw top-1 against GMACs as a PNG; bars are standard deviations over the seeds."""
    from matplotlib.backends.backend_agg import FigureCanvasAgg
    from matplotlib.figure import Figure

    figure = Figure(figsize=(7.2, 4.8), dpi=150, layout="constrained")
    FigureCanvasAgg(figure)
    axes = figure.add_subplot()
    lines: dict[str, list[Row]] = {}
    for row in rows:
        if row.top1:
            lines.setdefault(row.name, []).append(row)
    for name, points in lines.items():
        points.sort(key=lambda row: row.gmacs)
        bound = BOUNDS.get(points[0].method)
        axes.errorbar(
            [row.gmacs for row in points],
            [100 * row.mean for row in points],
            yerr=[100 * (row.deviation or 0.0) for row in points],
            label=name,
            color="black" if bound else None,
            marker=bound or "o",
            linestyle="--" if bound else "-",
            linewidth=1.4,
            markersize=7 if bound else 4.5,
            capsize=2,
        )
    axes.set(xlabel="GMACs a view", ylabel="top-1 %", title=title)
    axes.grid(alpha=0.25)
    if lines:
        axes.legend(fontsize=8, loc="best")
    figure.savefig(path)
