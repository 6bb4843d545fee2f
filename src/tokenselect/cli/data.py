"""`tokenselect data check`: read every video of a data set and report what is wrong."""

import json
import os
from collections import Counter
from statistics import median
from typing import Any

from rich.console import Console
from rich.markup import escape
from rich.progress import BarColumn, MofNCompleteColumn, Progress, TextColumn, TimeRemainingColumn
from rich.table import Table

from tokenselect.data.annotation_table import TableLayout
from tokenselect.data.annotations import read_annotations
from tokenselect.data.check import (
    Problem,
    Reading,
    count_kinds,
    find_duplicates,
    find_unlisted,
    read_samples,
)
from tokenselect.data.frame_folder import list_videos
from tokenselect.data.labels import SampleList

SHOWN = 50  # problems in the table; JSON has them all


def check(
    dataset: str,
    root: str | None = None,
    annotation_format: str | None = None,
    class_names: str | None = None,
    table: TableLayout | None = None,
    min_frames: int = 16,
    workers: int | None = None,
    quick: bool = False,
    json: bool = False,
) -> None:
    """Read every video and report missing, broken, too short, duplicate and unlabelled ones.

    Ends with exit code 1 if there is anything to report.

    Args:
        dataset: annotation file, or folder of class folders.
        root: folder that the paths of the annotations start from; the file's own if not given.
        annotation_format: folder, kinetics, list, ssv2, table or ucf101; told from the content if
            not given.
        class_names: file with the names of the classes, where the format does not say them.
        table: columns and rows of a table, for example --table.where.signer 1-7.
        min_frames: a video with fewer is too short.
        workers: videos read at once; as many as there are cores if not given.
        quick: read the list of frames and the first frame of each video only.
        json: print JSON instead of tables.
    """
    found = read_annotations(
        dataset,
        root=root,
        annotation_format=annotation_format,
        class_names=class_names,
        table=table,
    )
    readings = read_with_progress(found, min_frames=min_frames, quick=quick, workers=workers)
    problems = [problem for reading in readings for problem in reading.problems]
    problems += find_duplicates(readings)
    if os.path.isdir(dataset):
        problems += find_unlisted(list_videos(dataset), found.samples)
    report = summarize(found, readings, problems)
    if json:
        print_json(report, problems)
    else:
        print_tables(dataset, report, problems)
    if problems:
        raise SystemExit(1)


def read_with_progress(
    found: SampleList, *, min_frames: int, quick: bool, workers: int | None
) -> list[Reading]:
    """Read all videos behind a progress bar on the error stream."""
    columns = (TextColumn("reading videos"), BarColumn(), MofNCompleteColumn())
    with Progress(*columns, TimeRemainingColumn(), console=Console(stderr=True)) as progress:
        task = progress.add_task("", total=len(found))
        return read_samples(
            found.samples,
            min_frames=min_frames,
            decodes_all=not quick,
            workers=workers,
            on_done=lambda: progress.advance(task),
        )


def summarize(
    found: SampleList, readings: list[Reading], problems: list[Problem]
) -> dict[str, Any]:
    """Describe the data set by figures."""
    good = [reading for reading in readings if reading.num_frames]
    frames = sorted(reading.num_frames for reading in good)
    labels = Counter(sample.label for sample in found.samples if sample.label is not None)
    sizes = Counter(f"{reading.size[1]}×{reading.size[0]}" for reading in good)
    return {
        "videos": len(found),
        "classes": found.num_classes,
        "videos_per_class": [min(labels.values()), max(labels.values())] if labels else [0, 0],
        "frames": {"min": frames[0], "median": median(frames), "max": frames[-1]} if good else {},
        "fps": sorted({round(reading.fps, 2) for reading in good}),
        "sizes": dict(sizes.most_common()),
        "problems": count_kinds(problems),
    }


def print_json(report: dict[str, Any], problems: list[Problem]) -> None:
    """Print one JSON object with every problem."""
    details = [problem._asdict() for problem in problems]
    print(json.dumps({**report, "details": details}, indent=2, ensure_ascii=False))


def print_tables(dataset: str, report: dict[str, Any], problems: list[Problem]) -> None:
    """Print the figures, then the problems."""
    console = Console()
    figures = Table("", "", title=escape(dataset), show_header=False)
    figures.add_row("videos", f"{report['videos']:,}")
    least, most = report["videos_per_class"]
    figures.add_row("classes", f"{report['classes']:,}, with {least} to {most} videos")
    if report["frames"]:
        figures.add_row("frames", "{min} to {max}, median {median:g}".format(**report["frames"]))
        figures.add_row("frames a second", shorten([f"{fps:g}" for fps in report["fps"]]))
        figures.add_row("sizes", shorten(list(report["sizes"])))
    for kind, count in report["problems"].items():
        figures.add_row(kind, f"[red]{count}[/]" if count else "[green]0[/]")
    console.print(figures)
    if problems:
        details = Table("problem", "video", "what", title="problems")
        for problem in problems[:SHOWN]:
            details.add_row(problem.kind, escape(problem.path), escape(problem.detail))
        console.print(details)
    if len(problems) > SHOWN:
        console.print(f"… and {len(problems) - SHOWN} more; --json lists them all")


def shorten(values: list[str], most: int = 5) -> str:
    """Join the first values."""
    more = f" … ({len(values)} in all)" if len(values) > most else ""
    return ", ".join(values[:most]) + more
