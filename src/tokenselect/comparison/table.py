"""From the results of cells to the rows of a table, as text and Markdown."""

from __future__ import annotations

import json
import math
import statistics
from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass, field
from pathlib import Path
from typing import Any

from tokenselect.comparison.lines import DENSE, START, Line
from tokenselect.comparison.planning import Cells, Comparison
from tokenselect.measure.significance import Paired, compare_answers
from tokenselect.selectors.build import has_parameters

RIVALS = ("random", "uniform", "static")  # what a learned selection must beat


@dataclass(frozen=True, kw_only=True)
class Row:
    """One line of the table, over its seeds.

    Attributes:
        plan: what is kept in the test.
        method: how it is chosen.
        variant: of the recipe.
        seeds: those with a result.
        top1: one a seed.
        gmacs: billions of multiply-adds a view.
        milliseconds: median of one clip alone, timed in turns with all others; None if not timed.
        recall: by site, mean over seeds: the share of what matters that the site keeps.
        answers: a text of 0 and 1 a seed, one a clip.
        against: rival's method to the paired comparison with it.
        minutes: of the training, mean over seeds.
        errors: of the cells without a result.
        refusal: why the method cannot be at a site of the plan, if it cannot.
    """

    plan: str
    method: str
    variant: str = ""
    seeds: list[int] = field(default_factory=list)
    top1: list[float] = field(default_factory=list)
    gmacs: float = float("nan")
    milliseconds: float | None = None
    recall: dict[str, float] = field(default_factory=dict)
    answers: list[str] = field(default_factory=list)
    against: dict[str, Paired] = field(default_factory=dict)
    minutes: float = 0.0
    errors: list[str] = field(default_factory=list)
    refusal: str | None = None

    @property
    def mean(self) -> float:
        """Mean top-1; NaN without a result."""
        return statistics.mean(self.top1) if self.top1 else float("nan")

    @property
    def deviation(self) -> float | None:
        """Standard deviation of top-1 over the seeds; None with fewer than two."""
        return statistics.stdev(self.top1) if len(self.top1) > 1 else None

    @property
    def name(self) -> str:
        """Method and variant."""
        return f"{self.method} ({self.variant})" if self.variant else self.method

    def to_dict(self) -> dict[str, Any]:
        """Give plain values for JSON."""
        return {**asdict(self), "mean": self.mean, "deviation": self.deviation}


def summarize(wanted: Comparison, cells: Cells, errors: Mapping[str, str]) -> list[Row]:
    """Gather the results of all cells, each line compared with its rivals."""
    lines = [Line(DENSE, START), *wanted.dense_lines, *wanted.lines]
    rows = [gather(line, wanted.seeds, cells, errors) for line in lines]
    return [with_rivals(row, rows) for row in rows]


def gather(line: Line, seeds: Sequence[int], cells: Cells, errors: Mapping[str, str]) -> Row:
    """Read the results of one line."""
    title = START if line.method == START else line.title
    refusal = cells[title, seeds[0]].refusal
    if refusal:
        return Row(plan=line.plan, method=line.method, variant=line.variant, refusal=refusal)
    found: list[dict[str, Any]] = []
    failed: list[str] = []
    for seed in seeds:
        job = cells[title, seed]
        path = Path(job.results[line.plan])
        if path.is_file():
            found.append({**json.loads(path.read_text()), "seed": seed})
        else:
            failed.append(f"seed {seed}: {errors.get(job.key, 'no result')}")
    sites = found[0]["recall"] if found else {}
    return Row(
        plan=line.plan,
        method=line.method,
        variant=line.variant,
        seeds=[result["seed"] for result in found],
        top1=[result["top1"] for result in found],
        gmacs=found[0]["gmacs"] if found else float("nan"),
        recall={site: statistics.mean(r["recall"][site] for r in found) for site in sites},
        answers=[result["correct"] for result in found],
        minutes=statistics.mean(r["minutes"] for r in found) if found else 0.0,
        errors=failed,
    )


def with_rivals(row: Row, rows: Sequence[Row]) -> Row:
    """Compare a line with its rivals at the same plan, of its own variant where there is one."""
    against: dict[str, Paired] = {}
    for method in RIVALS:
        rivals = [r for r in rows if r.method == method and r.plan == row.plan and r is not row]
        rivals.sort(key=lambda rival: (rival.variant != row.variant, rival.variant))
        if not rivals or row.method == method:
            continue
        ours = dict(zip(row.seeds, row.answers, strict=True))
        theirs = dict(zip(rivals[0].seeds, rivals[0].answers, strict=True))
        both = sorted(ours.keys() & theirs.keys())
        if both:
            pair = [ours[s] for s in both], [theirs[s] for s in both]
            against[method] = compare_answers(*pair)
    return Row(**{**vars(row), "against": against})


def warn(rows: Sequence[Row]) -> list[str]:
    """Say where a learned selection is no better than what learns or looks at nothing."""
    warnings = []
    for row in rows:
        if not has_parameters(row.method) or row.method == "static":
            continue
        for method, paired in row.against.items():
            if not paired.is_better:
                warnings.append(
                    f"{row.plan}: {row.name} is not significantly better than {method} "
                    f"({100 * paired.difference:+.1f} points, p = {paired.p:.2g}, "
                    f"{paired.num_clips} clips × {paired.num_seeds} seeds)"
                )
    return warnings


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
