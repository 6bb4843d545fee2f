"""`tokenselect classify`: what is in many videos, as a table."""

import glob
import time
from functools import partial
from pathlib import Path
from typing import Any

import torch

from tokenselect.checkpoints import info_of, method_of, plan_of, weights_digest
from tokenselect.cli.options import TORCH, ModelOptions, RuntimeOptions
from tokenselect.cli.terminal import counting, telling
from tokenselect.data import parse_views
from tokenselect.data.frame_folder import walk_videos
from tokenselect.data.labels import read_text_lines
from tokenselect.inference.bulk import on_ray, on_this_machine
from tokenselect.inference.predict import Reading
from tokenselect.inference.rows import classify_videos


def classify(
    videos: list[str],
    *,
    options: ModelOptions,
    engine: RuntimeOptions = TORCH,
    out: str = "results.csv",
    views: str = "1x1",
    window: float = 10.0,
    step: float | None = None,
    batch: int = 8,
    workers: int | None = None,
    ray: str | None = None,
) -> None:
    """Classify many videos into a table, one row each; run it again to finish a killed run.

    Args:
        videos: files, folders, patterns, or lists of files (.txt, one per line).
        options: which model.
        engine: what runs it.
        out: results (.csv, .parquet or .jsonl); videos that already have a row are skipped.
        views: clips × crops of a video, or of each window, for example 5x1.
        window: longer videos are split into windows of this many seconds; 0 for never.
        step: seconds from one window to the next; half a window if not given.
        batch: clips per forward pass, from one video or several.
        workers: processes that read videos and, on a CPU or a Ray cluster, run the model; as many
            as threads if not given.
        ray: address of a Ray cluster, auto, or local for a new one on this machine.
    """
    clips, crops = parse_views(views)
    workers = torch.get_num_threads() if workers is None else workers
    if batch < 1 or workers < 0:
        raise ValueError(f"batch must be ≥ 1 and workers ≥ 0, got {batch} and {workers}")
    files = list_files(videos)
    with telling("loading the model"):
        loaded = options.load(videos, **({"device": "cpu"} if ray else {}))
    reading = Reading.of(loaded, clips, crops, window, step)
    how: dict[str, Any] = {"reading": reading, "batch": batch}
    if engine.runtime != "torch":
        how["open_run"] = engine.pick(loaded, batch=batch)
    answer = partial(on_this_machine, loaded, workers=workers, **how)
    if ray is not None:
        answer = partial(on_ray, loaded, workers=max(1, workers), address=ray, **how)
    settings = {  # what the answers depend on
        "model": info_of(loaded).name,
        "weights": weights_digest(loaded),
        "classes": info_of(loaded).class_names,
        "plan": str(plan_of(loaded)),
        "method": method_of(loaded),
        **{"views": views, "window": window, "step": step},
    }
    start = time.perf_counter()
    with counting("videos") as advance:
        summary = classify_videos(
            files, Path(out), answer, settings=settings, on_row=lambda done, of: advance(1, of)
        )
    done = summary.total - summary.skipped
    rate = done / max(time.perf_counter() - start, 1e-9)
    print(
        f"{summary.path}: {summary.total} videos, {summary.errors} of them unreadable; {done} now "
        f"({rate:.1f} per second), {summary.skipped} earlier"
    )
    if summary.errors:
        raise SystemExit(1)


def list_files(words: list[str]) -> list[str]:
    """List the videos that were named, without opening any."""
    found: list[str] = []
    for word in words:
        path = Path(word)
        if path.suffix == ".txt" and path.is_file():
            found += [line for _, line in read_text_lines(path)]
        elif path.is_dir():
            found += walk_videos(path)
        elif path.is_file():
            found.append(word)
        elif matches := sorted(glob.glob(word, recursive=True)):
            found += matches
        else:
            raise FileNotFoundError(f"no file matches {word}")
    return found
