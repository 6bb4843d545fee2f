"""The table as text: cells for every line, and as Markdown."""

from __future__ import annotations

import math
from collections.abc import Sequence

from tokenselect.comparison.significance import Paired
from tokenselect.comparison.summary import RIVALS, Row

COLUMNS = ("plan", "method", "top-1 %", "GMACs", "ms", "recall %")


def column_names(rows: Sequence[Row]) -> list[str]:
    """Name the columns: one more for each rival that is in the table."""
    met = [method for method in RIVALS if any(method in row.against for row in rows)]
    return [*COLUMNS, *(f"− {method}" for method in met)]


def row_texts(row: Row, columns: Sequence[str]) -> list[str]:
    """Give the text of each column."""
    return [
        row.plan,
        row.name,
        describe_accuracy(row),
        "–" if math.isnan(row.gmacs) else f"{row.gmacs:.4g}",
        "–" if row.milliseconds is None else f"{row.milliseconds:.1f}",
        ", ".join(f"{site} {100 * share:.0f}" for site, share in row.recall.items()) or "–",
        *(describe_lead(row.against.get(name[2:])) for name in columns[len(COLUMNS) :]),
    ]


def describe_lead(paired: Paired | None) -> str:
    """Give points, half of their 95 % interval, and p."""
    if paired is None:
        return "–"
    half = 50 * (paired.high - paired.low)
    return f"{100 * paired.difference:+.1f} ± {half:.1f} (p {paired.p:.1g})"


def describe_accuracy(row: Row) -> str:
    """Give mean ± deviation, and how many cells failed."""
    if row.refusal:
        return "N/A"
    if not row.top1:
        return "failed"
    spread = "" if row.deviation is None else f" ± {100 * row.deviation:.1f}"
    failed = f" ({len(row.errors)} failed)" if row.errors else ""
    return f"{100 * row.mean:.1f}{spread}{failed}"


def list_gaps(rows: Sequence[Row]) -> dict[str, list[str]]:
    """Say below a table which cells have no result, and why."""
    return {
        "Failed cells": [f"{row.plan} {row.name}, {error}" for row in rows for error in row.errors],
        "Not applicable": [f"{row.plan} {row.name}: {row.refusal}" for row in rows if row.refusal],
    }


def write_markdown(
    rows: Sequence[Row], *, title: str, command: str, warnings: Sequence[str]
) -> str:
    """Write the table with the command that made it, errors and warnings."""
    lines = [f"# {title}", "", f"`{command}`", ""]
    columns = column_names(rows)
    lines += ["| " + " | ".join(columns) + " |", "|" + " --- |" * len(columns)]
    lines += ["| " + " | ".join(row_texts(row, columns)) + " |" for row in rows]
    seeds = sorted({seed for row in rows for seed in row.seeds})
    clips = max((len(text) for row in rows for text in row.answers), default=0)
    lines += ["", f"Seeds {', '.join(map(str, seeds))}; {clips} test clips."]
    for heading, texts in {"Warnings": warnings, **list_gaps(rows)}.items():
        if texts:
            lines += ["", f"{heading}:", "", *(f"- {text}" for text in texts)]
    return "\n".join(lines) + "\n"
