"""Time of one clip for every line, in turns, in one process."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import replace
from functools import partial

import torch
from torch import nn

from tokenselect.comparison.job import prepare_test
from tokenselect.comparison.lines import START, Line
from tokenselect.comparison.planning import Cells
from tokenselect.comparison.summary import Row
from tokenselect.profiling import measure_latency
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
