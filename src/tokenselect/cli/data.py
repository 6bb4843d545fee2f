"""`tokenselect data check`: read every video of a data set and report what is wrong."""

from functools import partial
from pathlib import Path
from typing import Any

from rich.console import Console
from rich.markup import escape
from rich.table import Table

from tokenselect.cli.terminal import counting, make_table, print_json
from tokenselect.data import check as checks
from tokenselect.data.annotations import TableLayout, read_annotations
from tokenselect.data.frame_folder import walk_videos
from tokenselect.data.frame_source import escape_unprintable
from tokenselect.data.labels import shorten
from tokenselect.data.split import PART_WORDS, find_parts
from tokenselect.training.data import read_part
from tokenselect.training.recipe import read_recipe

SHOWN = 50  # problems in the table; JSON has them all


def check(
    dataset: str,
    root: str | None = None,
    annotation_format: str | None = None,
    class_names: str | None = None,
    table: TableLayout | None = None,
    min_frames: int | None = None,
    cache_short_side: int | None = None,
    workers: int | None = None,
    quick: bool = False,
    json: bool = False,
) -> None:
    """Read every video; report what is missing, broken, too short, listed twice or unlabelled.

    Also compares the parts of a data set: classes, counts, and videos that are in two of them.
    Ends with exit code 1 if it finds a problem.

    Args:
        dataset: a recipe (.yaml), whose parts are checked; a folder of class folders, or of
            train/val/test folders of them, or of annotation files; or an annotation file.
        root: folder that the paths of the annotations start from; the file's own if not given.
        annotation_format: folder, kinetics, list, ssv2, table or ucf101; told from the content if
            not given.
        class_names: file with the names of the classes, where the format does not say them.
        table: columns and rows of a table, for example --table.where.signer 1-7.
        min_frames: a video with fewer is too short; the recipe's frames, or 16.
        cache_short_side: of the frames in a cache, to say how much disk it will take; the
            recipe's, or 96.
        workers: videos read at once; as many as there are cores if not given.
        quick: read only the list of frames and the first frame of each video.
        json: print JSON instead of tables.
    """
    folders: list[Path] = []
    if Path(dataset).suffix in (".yaml", ".yml"):
        data = read_recipe(dataset, ["--data.root", root] if root else []).data
        parts = {part: read_part(data, part) for part in PART_WORDS}
        min_frames = min_frames or data.frames
        cache_short_side = cache_short_side or data.cache_short_side
    else:
        paths, read = find_parts(dataset), partial(read_annotations, root=root, table=table)
        read = partial(read, annotation_format=annotation_format, class_names=class_names)
        parts = {part: read(path) for part, path in paths.items()}
        folders = [path for path in paths.values() if path.is_dir()]
    short_side, fewest = cache_short_side or 96, min_frames or 16
    total = len({sample.path for part in parts.values() for sample in part.samples})
    with counting("reading videos", total) as advance:
        videos = checks.check_videos(
            parts, min_frames=fewest, decodes_all=not quick, workers=workers, on_done=advance
        )
    problems = [problem for video in videos for problem in video.problems]
    problems += checks.find_duplicates(videos) + checks.find_unknown_classes(parts)
    if folders:
        listed = [video.sample.path for video in videos]
        problems += checks.find_unlisted(walk_videos(dataset), listed)
    report = {
        **checks.describe_set(parts, videos, short_side=short_side),
        "cache_short_side": short_side,
        "problems": checks.count_kinds(problems),
        "notes": checks.note_classes(parts),
    }
    if json:
        print_json({**report, "details": [problem._asdict() for problem in problems]})
    else:
        show_report(dataset, report, problems)
    if problems:
        raise SystemExit(1)


def show_report(dataset: str, report: dict[str, Any], problems: list[checks.Problem]) -> None:
    """Print the figures, then the problems."""
    console, frames = Console(), report["frames"]
    figures = Table("", "", title=escape(escape_unprintable(dataset)), show_header=False)
    figures.add_row("videos", f"{report['videos']:,}")
    figures.add_row("classes", f"{report['classes']:,}")
    for part, found in report["parts"].items():
        counts = sorted(count for count in found["classes"].values() if count)
        each = f", {' to '.join(map(str, sorted({counts[0], counts[-1]})))} each" if counts else ""
        figures.add_row(part, f"{found['videos']:,} videos of {len(counts)} classes{each}")
    if frames:
        text = "{min} to {max}, median {median:g}" if frames["min"] < frames["max"] else "{min}"
        figures.add_row("frames", text.format(**frames))
        figures.add_row("frames per second", shorten([f"{fps:g}" for fps in report["fps"]]))
        figures.add_row("sizes", shorten(list(report["sizes"])))
        cache = f"{report['cache_bytes'] / 1e9:.2f} GB at a short side of"
        figures.add_row("cache on disk", f"{cache} {report['cache_short_side']}")
    for kind, count in report["problems"].items():
        figures.add_row(kind, f"[red]{count}[/]" if count else "[green]0[/]")
    console.print(figures)
    for note in report["notes"]:
        console.print(f"note: {escape(note)}", soft_wrap=True)
    if problems:
        details = make_table("video", "problem", "what", title="problems", texts=3)
        for problem in problems[:SHOWN]:
            details.add_row(*(escape(escape_unprintable(text)) for text in problem))
        console.print(details)
    if len(problems) > SHOWN:
        console.print(f"… and {len(problems) - SHOWN} more; --json lists them all")
