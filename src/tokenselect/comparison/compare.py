"""A whole comparison: run its cells, then write table, figure and page."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from functools import partial
from pathlib import Path

import torch
from torch import nn

from tokenselect.comparison.job import Job, prepare_test, write_json
from tokenselect.comparison.lines import START, Line
from tokenselect.comparison.page import can_draw, draw_figure, write_page
from tokenselect.comparison.planning import Cells, Comparison, plan_jobs
from tokenselect.comparison.pool import Told, run_jobs
from tokenselect.comparison.table import Row, summarize, warn, write_markdown
from tokenselect.measure.cost import measure_latency
from tokenselect.training.distributed import default_device


@torch.inference_mode()
def time_rows(rows: Sequence[Row], cells: Cells, *, repeats: int = 15) -> list[Row]:
    """Fill in the milliseconds of a clip alone; those of the oracle, who is told, mean nothing.

    Args:
        rows: those without a result are left out.
        cells: to find the trained models.
        repeats: rounds; the median of them counts.
    """
    device = default_device()
    tasks: dict[str, Callable[[], object]] = {}
    for number, row in enumerate(rows):
        title = START if row.method == START else Line(row.plan, row.method, row.variant).title
        job = cells[title, row.seeds[0]] if row.seeds else None
        if job is None or job.is_oracle:
            continue
        model, clips = prepare_test(job, row.plan)
        video, _ = clips.collate([clips.dataset[0]])
        tasks[str(number)] = partial(answer, model.to(device), video.to(device))
    seconds = measure_latency(tasks, repeats=repeats)
    return [
        replace(row, milliseconds=1000 * seconds[str(number)] if str(number) in seconds else None)
        for number, row in enumerate(rows)
    ]


def answer(model: nn.Module, video: torch.Tensor) -> torch.Tensor:
    """Run a model on the first view of a video."""
    return model(video if video.ndim == 5 else video[:, 0])


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
