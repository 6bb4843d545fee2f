"""Reading annotations: the format is told from the content, or named.

The standard library's `csv` and `json` do the parsing. Lines of `path label` are split by hand:
paths hold spaces and commas, too, so that only the last fields are fields.
"""

import csv
import io
import os
import re
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path

from tokenselect.data.frame_folder import VIDEO_SUFFIXES, find_by_id, walk_videos
from tokenselect.data.frame_source import PathOrStr
from tokenselect.data.labels import (
    MAX_CLASSES,
    Sample,
    SampleList,
    check_class_names,
    fold,
    label_samples,
    read_class_names,
    read_json,
    read_text,
    read_text_lines,
    sort_names,
)
from tokenselect.data.split import describe_parts, list_folders, part_of

Names = Sequence[str] | None
# what people call the columns of a table, the likeliest first; case does not count
PATH_WORDS = ("path", "video_path", "filepath", "file_path", "video", "filename", "file_name",
              "video_name", "file", "clip", "name")  # fmt: skip
LABEL_WORDS = ("label", "class", "class_name", "label_name", "category", "action", "activity")
SPLIT_WORDS = ("part", "split", "subset", "set", "partition")


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

    @property
    def needed_columns(self) -> set[str]:
        """Columns that a table must have."""
        in_path = re.findall(r"{([^{}]*)}", self.path) or [self.path]
        others = (self.names, self.start, self.stop)
        return {*in_path, self.label, *self.where, *(name for name in others if name is not None)}


def read_annotations(
    path: PathOrStr,
    *,
    root: PathOrStr | None = None,
    annotation_format: str | None = None,
    class_names: PathOrStr | Sequence[str] | None = None,
    table: TableLayout | None = None,
) -> SampleList:
    """Read a list of labelled videos.

    Args:
        path: a file of one of the `ANNOTATION_FORMATS`, or a folder of class folders.
        root: folder that relative paths start from, or in which videos are looked for by their
            id; the folder of the file if not given.
        annotation_format: one of `ANNOTATION_FORMATS`; told from the content if not given.
        class_names: the names in the order of their labels, or a file of them. Videos are matched
            to them by name; a video of another class is an error.
    """
    path = Path(path)
    if not path.exists():
        raise FileNotFoundError(f"no annotations at {path}")
    if annotation_format is None:
        annotation_format = "table" if table is not None else sniff_format(path)
    if annotation_format not in ANNOTATION_FORMATS:
        raise ValueError(
            f"annotation_format must be one of {', '.join(ANNOTATION_FORMATS)}, "
            f"got {annotation_format!r}"
        )
    if isinstance(class_names, str | os.PathLike):
        class_names = read_class_names(class_names)
    base = Path(root) if root is not None else path.parent
    layout = {}
    if annotation_format == "table":
        layout["layout"] = table or guess_layout(path) or TableLayout()
    return ANNOTATION_FORMATS[annotation_format](path, root=base, class_names=class_names, **layout)


def sniff_format(path: Path) -> str:
    """Tell the format of annotations from how they begin."""
    if path.is_dir():
        return "folder"
    lines = read_text_lines(path)
    if not lines:
        raise ValueError(f"{path} is empty")
    first = lines[0][1]
    if first.startswith(("[", "{")):
        return "ssv2"
    columns = set(re.split(r"[\t,]", first))
    if {"youtube_id", "time_start"} <= columns:
        return "kinetics"
    if re.fullmatch(r"(\w+)/v_\1_g[0-9]+_c[0-9]+\.\w+( [0-9]+)?", first, re.IGNORECASE):
        return "ucf101"
    if split_last_field(first) is not None:
        return "list"
    if guess_layout(path) is not None:
        return "table"
    raise ValueError(
        f"cannot tell the format of {path} from its first line {first[:80]!r}: begin it with the "
        "columns path,label, or name its annotation_format, one of "
        f"{', '.join(ANNOTATION_FORMATS)}"
    )


def guess_layout(path: Path) -> TableLayout | None:
    """Recognise a table by the usual names of its columns, or by rows `video.mp4,class`."""
    columns = first_row(path)
    video, label = find_column(columns, PATH_WORDS), find_column(columns, LABEL_WORDS)
    if video is not None and label is not None:
        return TableLayout(path=video, label=label)
    if len(columns) == 2 and Path(columns[0]).suffix.lower() in VIDEO_SUFFIXES:
        return TableLayout(columns=("path", "label"))
    return None


def first_row(path: Path) -> list[str]:
    """Read the fields of the first line that is not blank."""
    first = next((line for _, line in read_text_lines(path)), "")
    try:
        return next(csv.reader([first], delimiter="\t" if "\t" in first else ","), [])
    except csv.Error:  # no table
        return []


def find_column(columns: Sequence[str], words: Sequence[str]) -> str | None:
    """Return the column that is called by the likeliest of some words."""
    known = {column.strip().lower(): column for column in reversed(columns)}
    return next((known[word] for word in words if word in known), None)


def read_folder(path: Path, *, root: Path, class_names: Names) -> SampleList:
    """Read a folder of class folders; `root` is not used."""
    videos = {folder.name: walk_videos(folder) for folder in list_folders(path)}
    videos = {name: found for name, found in videos.items() if found}
    if videos and all(part_of(name) for name in videos):
        raise ValueError(
            f"{path} holds {describe_parts(videos)}, not classes: name one of them, such as "
            f"{path / min(videos)}"
        )
    paths = [video for found in videos.values() for video in found]
    labels = [name for name, found in videos.items() for _ in found]
    return label_samples(paths, labels, list(videos) if class_names is None else class_names, path)


def read_kinetics(path: Path, *, root: Path, class_names: Names) -> SampleList:
    """Read the CSV of Kinetics: label, youtube_id, time_start, time_end, split …

    A video is looked for under `root` by its usual name, `ID_000036_000046`.
    """
    rows = read_csv_rows(path, needed={"youtube_id", "time_start", "time_end"})
    ids = []
    for number, row in enumerate(rows, 2):
        start, end = (_read_number(row[key], path, number) for key in ("time_start", "time_end"))
        ids.append(f"{row['youtube_id']}_{start:06d}_{end:06d}")
    if class_names is None and rows and rows[0].get("label_id") and "label" in rows[0]:
        named: dict[int, str] = {}
        for line, row in enumerate(rows, 2):
            number = _read_number(row["label_id"], path, line, below=MAX_CLASSES)
            if named.setdefault(number, row["label"]) != row["label"]:
                raise ValueError(f"{path}, line {line}: label_id {number} has two names")
        # numbers that a part of a data set lacks are named by themselves
        class_names = [named.get(number, str(number)) for number in range(max(named) + 1)]
    labels = [row.get("label") or None for row in rows]
    return label_samples(find_by_id(ids, root, suffix=".mp4"), labels, class_names, path)


def _read_number(text: str, path: Path, line: int, *, below: int = 10**9) -> int:
    if not re.fullmatch(r"[0-9]{1,18}", text.strip()) or int(text) >= below:
        raise ValueError(
            f"{path}, line {line}: expected a whole number below {below:,}, got {text[:40]!r}"
        )
    return int(text)


def read_list(path: Path, *, root: Path, class_names: Names) -> SampleList:
    """Read lines `path label`, or `folder num_frames label`, parted by space, comma or tab."""
    paths, labels = [], []
    for number, line in read_text_lines(path):
        fields = split_last_field(line)
        if fields is None:
            raise ValueError(f"{path}, line {number}: expected `path label`, got {line[:80]!r}")
        if fields[1] >= MAX_CLASSES:
            raise ValueError(
                f"{path}, line {number}: label {fields[1]} is too large: at most {MAX_CLASSES:,} "
                "classes are supported"
            )
        paths.append(fields[0])
        labels.append(fields[1])
    counted = [split_last_field(name) for name in paths]
    if all(found and Path(found[0]).suffix.lower() not in VIDEO_SUFFIXES for found in counted):
        paths = [found[0] for found in counted if found]
    highest = max(labels, default=-1)
    names = class_names if class_names is not None else [str(i) for i in range(highest + 1)]
    if highest >= len(names):
        raise ValueError(f"{path} has label {highest}, but there are {len(names)} class names")
    check_class_names(names, path=path)
    samples = [
        Sample(os.path.join(root, name), label if label >= 0 else None)
        for name, label in zip(paths, labels, strict=True)
    ]
    return SampleList(samples, list(names))


def split_last_field(line: str) -> tuple[str, int] | None:
    """Split `path label` at the last space, comma or tab; None if that leaves no number."""
    found = re.fullmatch(r"(.*[^ ,\t])[ ,\t]+(-?[0-9]{1,18})", line)
    return (found[1], int(found[2])) if found else None


def read_ssv2(path: Path, *, root: Path, class_names: Names) -> SampleList:
    """Read the JSON of Something-Something V2; `*labels.json` beside it names the classes.

    The label of a clip is its template, whose `[something]` lacks its brackets in the labels.
    """
    entries = read_json(path)
    if not isinstance(entries, list) or not all(
        isinstance(entry, dict) and isinstance(entry.get("id"), str | int) for entry in entries
    ):
        raise ValueError(f'{path} must hold a list of entries with an "id"')
    beside = sorted(path.parent.glob("*labels.json"))
    if class_names is None and beside:
        class_names = read_class_names(beside[0])
    templates = [entry.get("template") for entry in entries]
    labels = [None if template is None else str(template) for template in templates]
    paths = find_by_id([str(entry["id"]) for entry in entries], root, suffix=".webm")
    return label_samples(paths, labels, class_names, path)


def read_ucf101(path: Path, *, root: Path, class_names: Names) -> SampleList:
    """Read a list of UCF101, `Class/v_Class_g01_c01.avi 1`, or without numbers as in tests.

    The class is that of the folder; `classInd.txt` beside the list gives the order.
    """
    paths = [line.split()[0] for _, line in read_text_lines(path)]
    beside = sorted(path.parent.glob("*classInd.txt"))
    if class_names is None and beside:
        class_names = read_class_names(beside[0])
    labels = [name.split("/")[0] for name in paths]
    return label_samples([os.path.join(root, name) for name in paths], labels, class_names, path)


def read_annotation_table(
    path: Path, *, root: Path, class_names: Names, layout: TableLayout
) -> SampleList:
    """Read a TSV or CSV with a column, or a pattern of columns, for the path."""
    rows = read_csv_rows(path, needed=layout.needed_columns, columns=layout.columns)
    if layout.classes is not None:
        rows = [row for row in rows if matches(row[layout.label], layout.classes)]
    name_of: dict[str, str] = {}
    for row in rows:
        label, name = row[layout.label], row[layout.names or layout.label]
        if label and name_of.setdefault(label, name) != name:
            raise ValueError(
                f"{path}: the label {label!r} has two names, {name_of[label]!r} and {name!r}"
            )
    if class_names is None:
        class_names = [name_of[label] for label in sort_names(filter(None, name_of))]
    known = {fold(name) for name in class_names}
    where = layout.where.items()
    chosen = [row for row in rows if all(matches(row[name], values) for name, values in where)]
    labels = [row[layout.label] or None for row in chosen]
    # A row's class is known by its name, or, in a file of names without it, by its label.
    named = [name_of[own] if own and fold(name_of[own]) in known else own for own in labels]
    pattern = layout.path if "{" in layout.path else f"{{{layout.path}}}"
    paths = [os.path.join(root, _fill(pattern, row)) for row in chosen]
    spans = [_read_span(row, layout, path) for row in chosen]
    return label_samples(paths, named, class_names, path, spans=spans)


def _read_span(row: dict[str, str], layout: TableLayout, path: Path) -> tuple[int, int] | None:
    """Read the part of a video that a row stands for."""
    if layout.start is None or layout.stop is None:
        return None
    ends = [row[layout.start], row[layout.stop]]
    if not all(re.fullmatch(r"[0-9]{1,18}", end) for end in ends) or int(ends[0]) >= int(ends[1]):
        raise ValueError(
            f"{path}: {layout.start} and {layout.stop} must be frame numbers, the first smaller, "
            f"got {ends[0]!r} and {ends[1]!r}"
        )
    return int(ends[0]), int(ends[1])


def read_csv_rows(
    path: Path, *, needed: set[str], columns: Sequence[str] | None = None
) -> list[dict[str, str]]:
    """Read a CSV or TSV whose first line, or `columns`, names its columns."""
    text = read_text(path)
    delimiter = "\t" if "\t" in text.partition("\n")[0] else ","
    file = io.StringIO(text, newline="")
    reader = csv.DictReader(file, fieldnames=columns, delimiter=delimiter, restval="")
    try:
        rows = list(reader)
    except csv.Error as error:
        raise ValueError(f"{path}, line {reader.line_num + 1}: {error}") from error
    names = list(reader.fieldnames or ())
    if twice := sorted(name for name in needed if names.count(name) > 1):
        raise ValueError(f"{path} has two columns {twice[0]}")
    missing = needed - set(names)
    if missing:
        raise ValueError(
            f"{path} has no column {', '.join(sorted(missing))}; it has "
            f"{', '.join(names or ['no rows'])[:200]}. "
            "Name the columns of a table without a header in `columns`."
        )
    return rows


def matches(value: str, values: str) -> bool:
    """Tell whether a value is among words, numbers and ranges: "train", "9,10", "23-61:2"."""
    value = value.strip()
    for part in values.split(","):
        span = re.fullmatch(r"\s*([0-9]+)-([0-9]+)(?::([0-9]+))?\s*", part)
        if span and re.fullmatch(r"[0-9]{1,18}", value):
            first, last, step = int(span[1]), int(span[2]), int(span[3] or 1)
            if int(value) in range(first, last + 1, max(1, step)):
                return True
        elif value == part.strip():
            return True
    return False


def _fill(pattern: str, row: dict[str, str]) -> str:
    return re.sub(r"{([^{}]*)}", lambda found: row[found[1]], pattern)


ANNOTATION_FORMATS: dict[str, Callable[..., SampleList]] = {
    "folder": read_folder,
    "kinetics": read_kinetics,
    "list": read_list,
    "ssv2": read_ssv2,
    "table": read_annotation_table,
    "ucf101": read_ucf101,
}
