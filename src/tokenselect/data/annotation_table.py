"""Tables of videos: any TSV or CSV with a column, or a pattern of columns, for the path."""

from __future__ import annotations

import csv
import os
import re
from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path

from tokenselect.data.labels import Sample, SampleList, fold, number_labels, sort_names


@dataclass(frozen=True, kw_only=True)
class TableLayout:
    """Which columns of a table say what, and which of its rows count.

    Values are given as words, numbers, ranges and lists of them: "train", "1-7", "9,10",
    "23-61:2" (every second number).

    Attributes:
        path: a column, or a pattern of columns such as "{class}/{clip}.mp4".
        label: the column of the class.
        names: the column with the name of the class, where `label` is a number.
        columns: names of the columns of a table that does not open with them.
        classes: the classes to keep; they are counted anew from 0. They do not depend on `where`,
            so that the parts of a data set agree.
        where: what other columns must hold, such as {"signer": "1-7"}.
        start: the column of the first frame, where a row is a part of a video; from 0.
        stop: the column of the frame after the last one.
    """

    path: str = "path"
    label: str = "label"
    names: str | None = None
    columns: tuple[str, ...] | None = None
    classes: str | None = None
    where: Mapping[str, str] = field(default_factory=dict)
    start: str | None = None
    stop: str | None = None

    def __post_init__(self) -> None:
        if (self.start is None) != (self.stop is None):
            raise ValueError(
                f"start and stop must both name a column, got {self.start!r} and {self.stop!r}"
            )


def read_table(
    path: Path,
    *,
    root: Path,
    class_names: list[str] | None = None,
    layout: TableLayout = TableLayout(),  # noqa: B008 - frozen
) -> SampleList:
    """Read a TSV or CSV whose paths are relative to `root`."""
    rows = _read_rows(path, layout)
    if layout.classes is not None:
        rows = [row for row in rows if matches(row[layout.label], layout.classes)]
    if class_names is None:
        class_names = sort_names(row[layout.label] for row in rows)
    chosen = [
        row
        for row in rows
        if all(matches(row[column], values) for column, values in layout.where.items())
    ]
    labels, names = number_labels([row[layout.label] for row in chosen], class_names, path=path)
    if layout.names is not None:
        name_of = {fold(row[layout.label]): row[layout.names] for row in rows}
        names = [name_of.get(fold(name), name) for name in names]
    paths = [os.path.join(root, _fill(layout.path, row)) for row in chosen]
    spans = [_read_span(row, layout, path) for row in chosen]
    return SampleList([Sample(*one) for one in zip(paths, labels, spans, strict=True)], names)


def has_header(path: Path, layout: TableLayout) -> bool:
    """Tell whether the first line names the columns that the layout asks for."""
    with path.open(newline="", encoding="utf-8") as file:
        first = file.readline().rstrip("\r\n")
    return _needed_columns(layout) <= set(re.split(r"[\t,]", first))


def matches(value: str, values: str) -> bool:
    """Tell whether a value is among words, numbers and ranges: "train", "9,10", "23-61:2"."""
    for part in values.split(","):
        span = re.fullmatch(r"\s*(\d+)-(\d+)(?::(\d+))?\s*", part)
        if span and value.strip().isdigit():
            first, last, step = int(span[1]), int(span[2]), int(span[3] or 1)
            if int(value) in range(first, last + 1, step):
                return True
        elif value.strip() == part.strip():
            return True
    return False


def _read_rows(path: Path, layout: TableLayout) -> list[dict[str, str]]:
    with path.open(newline="", encoding="utf-8") as file:
        first = file.readline()
        file.seek(0)
        delimiter = "\t" if "\t" in first else ","
        rows = list(csv.DictReader(file, fieldnames=layout.columns, delimiter=delimiter))
    missing = _needed_columns(layout) - set(rows[0] if rows else ())
    if missing:
        raise ValueError(
            f"{path} has no column {', '.join(sorted(missing))}; it has "
            f"{', '.join(str(name) for name in rows[0]) if rows else 'no rows'}. "
            "Name the columns of a table without a header in `columns`."
        )
    return rows


def _needed_columns(layout: TableLayout) -> set[str]:
    in_path = re.findall(r"{(.*?)}", layout.path) or [layout.path]
    names = [layout.names] if layout.names else []
    ends = [column for column in (layout.start, layout.stop) if column is not None]
    return {*in_path, layout.label, *names, *layout.where, *ends}


def _read_span(row: dict[str, str], layout: TableLayout, path: Path) -> tuple[int, int] | None:
    """Read the part of a video that a row stands for."""
    if layout.start is None or layout.stop is None:
        return None
    first, last = row[layout.start], row[layout.stop]
    if not (first.isdigit() and last.isdigit() and int(first) < int(last)):
        raise ValueError(
            f"{path}: {layout.start} and {layout.stop} must be frames, the first before the other, "
            f"got {first!r} and {last!r}"
        )
    return int(first), int(last)


def _fill(pattern: str, row: dict[str, str]) -> str:
    """Put the values of a row into a pattern, or take the column of that name."""
    if "{" not in pattern:
        return row[pattern]
    return re.sub(r"{(.*?)}", lambda match: row[match[1]], pattern)
