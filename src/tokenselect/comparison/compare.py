"""A whole comparison: run its cells, then write table, figure and page."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from pathlib import Path

from tokenselect.comparison.figure import can_draw, draw_figure
from tokenselect.comparison.job import Job, write_json
from tokenselect.comparison.page import write_page
from tokenselect.comparison.planning import Comparison, plan_jobs
from tokenselect.comparison.pool import Told, run_jobs
from tokenselect.comparison.summary import Row, summarize, warn
from tokenselect.comparison.table import write_markdown
from tokenselect.comparison.timing import time_rows


@dataclass(frozen=True)
class Compared:
    """What a comparison found.

    Attributes:
        rows: of the table.
        warnings: where learning is no better than not.
        files: that were written.
    """

    rows: list[Row]
    warnings: list[str]
    files: list[Path]


def run_comparison(
    wanted: Comparison,
    *,
    title: str,
    command: str = "",
    workers: int = 2,
    repeats: int = 15,
    on_start: Callable[[Sequence[Job]], object] = id,
    on_done: Told = lambda job, error: None,
) -> Compared:
    """Run what is not done yet, and write everything anew.

    Args:
        wanted: what to compare.
        title: of the table.
        command: what makes it again.
        workers: processes at a time; 0 runs all in this one.
        repeats: rounds of the timing; 0 times nothing.
        on_start: told all jobs before the first one runs.
        on_done: told each job when it ends.
    """
    jobs, cells = plan_jobs(wanted)
    on_start(jobs)
    errors = run_jobs(jobs, folder=wanted.folder, workers=workers, on_done=on_done)
    rows = summarize(wanted, cells, errors)
    if repeats:
        rows = time_rows(rows, cells, repeats=repeats)
    warnings = warn(rows)
    folder = wanted.folder
    values = {
        "title": title,
        "command": command,
        "recipe": wanted.recipe.to_dict(),
        "warnings": warnings,
        "rows": [row.to_dict() for row in rows],
    }
    write_json(folder / "comparison.json", values)
    text = write_markdown(rows, title=title, command=command, warnings=warnings)
    (folder / "comparison.md").write_text(text)
    files = [folder / "comparison.json", folder / "comparison.md"]
    figure = folder / "comparison.png" if can_draw() else None
    if figure is not None:
        draw_figure(rows, figure, title=title)
        files.append(figure)
    page = write_page(rows, title=title, command=command, warnings=warnings, figure=figure)
    (folder / "comparison.html").write_text(page)
    return Compared(rows, warnings, [*files, folder / "comparison.html"])
