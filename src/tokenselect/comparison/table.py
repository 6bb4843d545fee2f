"""The table as text: cells for every line, and as Markdown."""

from __future__ import annotations

import math
from collections.abc import Sequence

from tokenselect.comparison.summary import Row

COLUMNS = ("plan", "method", "top-1 %", "GMACs", "ms", "recall %", "− random", "p")


def row_texts(row: Row) -> list[str]:
    """Give the text of each of `COLUMNS`."""
    paired = row.against.get("random")
    return [
        row.plan,
        row.name,
        describe_accuracy(row),
        "–" if math.isnan(row.gmacs) else f"{row.gmacs:.4g}",
        "–" if row.milliseconds is None else f"{row.milliseconds:.1f}",
        ", ".join(f"{site} {100 * share:.0f}" for site, share in row.recall.items()) or "–",
        f"{100 * paired.difference:+.1f} [{100 * paired.low:+.1f}, {100 * paired.high:+.1f}]"
        if paired
        else "–",
        f"{paired.p:.2g}" if paired else "–",
    ]


def describe_accuracy(row: Row) -> str:
    """Give mean ± deviation, and how many cells failed."""
    if not row.top1:
        return "failed"
    spread = "" if row.deviation is None else f" ± {100 * row.deviation:.1f}"
    failed = f" ({len(row.errors)} failed)" if row.errors else ""
    return f"{100 * row.mean:.1f}{spread}{failed}"


def write_markdown(
    rows: Sequence[Row], *, title: str, command: str, warnings: Sequence[str]
) -> str:
    """Write the table with the command that made it, errors and warnings."""
    lines = [f"# {title}", "", f"`{command}`", ""]
    lines += ["| " + " | ".join(COLUMNS) + " |", "|" + " --- |" * len(COLUMNS)]
    lines += ["| " + " | ".join(row_texts(row)) + " |" for row in rows]
    seeds = sorted({seed for row in rows for seed in row.seeds})
    clips = max((len(text) for row in rows for text in row.answers), default=0)
    lines += ["", f"Seeds {', '.join(map(str, seeds))}; {clips} test clips."]
    errors = [f"{row.plan} {row.name}, {error}" for row in rows for error in row.errors]
    for heading, texts in (("Warnings", warnings), ("Failed cells", errors)):
        if texts:
            lines += ["", f"{heading}:", "", *(f"- {text}" for text in texts)]
    return "\n".join(lines) + "\n"
