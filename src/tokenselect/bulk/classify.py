"""A run over many videos: what is done is skipped, what fails costs a row."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from tokenselect.bulk.journal import Journal
from tokenselect.bulk.rows import Row
from tokenselect.bulk.table import check_table, read_table, write_table

Engine = Callable[[Sequence[str]], Iterable[Row]]


@dataclass(frozen=True)
class Summary:
    """How a run ended.

    Attributes:
        path: the results.
        total: rows in it.
        skipped: rows that were there before.
        errors: videos that could not be read.
    """

    path: Path
    total: int
    skipped: int
    errors: int


def classify_videos(
    videos: Sequence[str],
    out: Path,
    engine: Engine,
    *,
    settings: Mapping[str, Any],
    on_row: Callable[[int, int], object] | None = None,
) -> Summary:
    """Classify videos into a file; a run that was killed is finished by the next.

    Until all are done the rows stand in `out` with `.part` behind it.

    Args:
        videos: files; one named twice is done once.
        out: the file, .parquet or .jsonl.
        engine: answers for the videos it is given, in any order.
        settings: what the answers depend on; a run is not finished with others.
        on_row: told how many of how many are done.
    """
    check_table(out)
    wanted = dict.fromkeys(videos)
    done = {row.video: row for row in read_table(out, settings)} if out.exists() else {}
    journal = Journal(out.with_name(f"{out.name}.part"), settings)
    done |= journal.rows
    left = [video for video in wanted if video not in done]
    skipped = len(wanted) - len(left)
    for row in engine(left) if left else ():
        journal.add(row)
        done[row.video] = row
        if on_row is not None:
            on_row(len(done), len(wanted))
    others = [row for video, row in done.items() if video not in wanted]
    rows = [*(done[video] for video in wanted), *others]
    write_table(out, rows, settings=settings)
    journal.path.unlink()
    errors = sum(row.error is not None for row in rows)
    return Summary(out, len(rows), skipped, errors)
