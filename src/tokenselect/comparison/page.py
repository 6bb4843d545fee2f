"""The comparison as a figure and as one HTML page that needs nothing else."""

from __future__ import annotations

import base64
import importlib.util
from collections.abc import Sequence
from html import escape
from pathlib import Path

from tokenselect.comparison.lines import DENSE, ORACLE, START
from tokenselect.comparison.table import Row, column_names, list_gaps, row_texts

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


STYLE = """
body { font: 15px/1.5 system-ui, sans-serif; max-width: 70rem; margin: 2rem auto; padding: 0 1rem }
table { border-collapse: collapse; font-variant-numeric: tabular-nums }
th, td { padding: .3rem .8rem; border-bottom: 1px solid #8884; text-align: right }
th:nth-child(-n+2), td:nth-child(-n+2) { text-align: left }
tr.plan td { border-top: 2px solid #8888 }
img { max-width: 100%; background: white } code { overflow-wrap: anywhere }
.warning { color: #b35900 }
@media (prefers-color-scheme: dark) { body { background: #181818; color: #ddd } }
"""
NOTES = (
    "top-1: mean ± standard deviation over the seeds. recall: share of what matters that a site "
    "keeps, where the truth is known. − random: points above random selection at the same plan, "
    "half of their 95 % interval over the clips, and p of the paired test; so for the others."
)


def write_page(
    rows: Sequence[Row],
    *,
    title: str,
    command: str,
    warnings: Sequence[str],
    figure: Path | None,
) -> str:
    """Give the page's text.

    Args:
        rows: of the table.
        title: heading.
        command: what makes the page again.
        warnings: from `warn`.
        figure: PNG to put into the page, or None.
    """
    parts = [f"<h1>{escape(title)}</h1>", f"<p><code>{escape(command)}</code></p>"]
    if figure is not None:
        data = base64.b64encode(figure.read_bytes()).decode()
        parts.append(f'<p><img alt="top-1 against GMACs" src="data:image/png;base64,{data}"></p>')
    columns = column_names(rows)
    parts.append("<table><tr>" + "".join(f"<th>{escape(c)}</th>" for c in columns) + "</tr>")
    before = None
    for row in rows:
        cells = "".join(f"<td>{escape(text)}</td>" for text in row_texts(row, columns))
        parts.append(f"<tr{' class=plan' if row.plan != before else ''}>{cells}</tr>")
        before = row.plan
    parts.append(f"</table><p>{escape(NOTES)}</p>")
    parts += [f'<p class="warning">{escape(text)}</p>' for text in warnings]
    for heading, texts in list_gaps(rows).items():
        parts += [f'<p class="warning">{heading}: {escape(text)}</p>' for text in texts]
    head = '<meta charset="utf-8"><meta name="viewport" content="width=device-width">'
    head += f"<title>{escape(title)}</title><style>{STYLE}</style>"
    return f"<!doctype html><html><head>{head}</head><body>{''.join(parts)}</body></html>\n"
