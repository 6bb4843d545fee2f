"""A whole comparison: run its cells, then write table, figure and page."""

import importlib.util
from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from functools import partial
from pathlib import Path
from typing import Any

import torch

from tokenselect.comparison import planning, table
from tokenselect.comparison.trials import Trial, prepare_test, run_trials, write_json
from tokenselect.locking import write_whole, writing
from tokenselect.measure.cost import be_silent, measure_latency
from tokenselect.training.distributed import choose_device


@dataclass(frozen=True)
class ComparisonResult:
    """What a comparison found."""

    rows: list[table.ComparisonRow]  # of the table
    warnings: list[str]  # where learning is no better than not
    files: list[Path]  # that were written


def run_comparison(
    wanted: planning.Comparison,
    *,
    title: str,
    command: str = "",
    workers: int = 2,
    repeats: int = 15,
    on_start: Callable[[Sequence[Trial]], object] = be_silent,
    on_done: Callable[[Trial, str | None], object] = be_silent,
) -> ComparisonResult:
    """Run what is not done yet, and write everything anew.

    Args:
        wanted: what to compare.
        title: of the table.
        command: what makes it again.
        workers: processes at a time; 0 runs all in this one.
        repeats: rounds of the timing; 0 times nothing.
        on_start: gets all trials before the first one runs.
        on_done: gets each trial when it ends, and what went wrong, if anything.
    """
    folder, recipe = wanted.folder, wanted.recipe
    trials, cells = planning.plan_trials(wanted)
    planning.refuse_other_videos(recipe.data, folder)
    on_start(trials)
    errors = run_trials(trials, folder=folder, workers=workers, on_done=on_done)
    rows = table.summarize_cells(wanted, cells, errors)
    if repeats:
        rows = time_rows(rows, cells, repeats=repeats)
    warnings = [*table.find_warnings(rows), *table.find_noise(rows)]
    told: dict[str, Any] = {"title": title, "command": command, "warnings": warnings}
    files = [folder / f"comparison.{suffix}" for suffix in ("json", "md", "png", "html")]
    values, text, figure, page = files
    plain = {"recipe": recipe.to_dict(), "rows": [row.to_dict() for row in rows]}
    write_json(values, {**told, **plain})
    write_whole(text, table.write_markdown(rows, **told))
    if importlib.util.find_spec("matplotlib") is None:
        files.remove(figure)
    else:
        with writing(figure) as unfinished:
            table.draw_figure(rows, unfinished, title=title)
    shown = figure if figure in files else None
    write_whole(page, table.write_html(rows, **told, figure=shown))
    return ComparisonResult(rows, warnings, files)


@torch.inference_mode()
def time_rows(
    rows: Sequence[table.ComparisonRow], cells: planning.Cells, *, repeats: int
) -> list[table.ComparisonRow]:
    """Fill in the milliseconds of a clip alone; not for the oracle, who is told what to keep."""
    device = choose_device()
    tasks: dict[str, Callable[[], object]] = {}
    for number, row in enumerate(rows):
        if row.seeds and row.method != planning.ORACLE:
            line = planning.Line(row.plan, row.method, row.variant)
            model, clips = prepare_test(cells[line.title, row.seeds[0]], row.plan)
            video, _ = clips.collate([clips.dataset[0]])
            first = (video if video.ndim == 5 else video[:, 0]).to(device)  # one view
            tasks[str(number)] = partial(model.to(device), first)
    seconds = measure_latency(tasks, repeats=repeats)
    times = {int(number): time.scaled(1000) for number, time in seconds.items()}
    return [replace(row, milliseconds=times.get(number)) for number, row in enumerate(rows)]
