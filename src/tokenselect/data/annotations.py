"""Reading annotations: the format is told from the content, or named."""

from __future__ import annotations

import csv
import json
import os
import re
from collections.abc import Callable
from pathlib import Path

from tokenselect.data.annotation_table import TableLayout, has_header, read_table
from tokenselect.data.frame_folder import VIDEO_SUFFIXES, find_by_id, list_videos
from tokenselect.data.labels import Sample, SampleList, number_labels, read_class_names


def read_folder(path: Path, *, root: Path, class_names: list[str] | None) -> SampleList:
    """Read a folder of class folders; `root` is not used."""
    folders = sorted(folder for folder in path.iterdir() if folder.is_dir())
    pairs = [(video, folder.name) for folder in folders for video in list_videos(folder)]
    labels, names = number_labels(
        [label for _, label in pairs],
        class_names or [folder.name for folder in folders if list_videos(folder)],
        path=path,
    )
    return _join([video for video, _ in pairs], labels, names)


def read_kinetics(path: Path, *, root: Path, class_names: list[str] | None) -> SampleList:
    """Read the CSV of Kinetics: label, youtube_id, time_start, time_end, split …

    A video is looked for under `root` by its usual name, `ID_000036_000046`.
    """
    with path.open(newline="", encoding="utf-8") as file:
        rows = list(csv.DictReader(file))
    ids = [
        f"{row['youtube_id']}_{int(row['time_start']):06d}_{int(row['time_end']):06d}"
        for row in rows
    ]
    if class_names is None and rows and rows[0].get("label_id"):
        class_names = _names_by_number({row["label"]: int(row["label_id"]) for row in rows})
    labels, names = number_labels(
        [row.get("label") or None for row in rows], class_names, path=path
    )
    return _join(find_by_id(ids, root, suffix=".mp4"), labels, names)


def read_list(path: Path, *, root: Path, class_names: list[str] | None) -> SampleList:
    """Read lines `path label`, or `folder num_frames label`, parted by space, comma or tab."""
    paths, numbers = [], []
    for number, line in enumerate(path.read_text(encoding="utf-8").splitlines(), 1):
        if not line.strip():
            continue
        match = re.fullmatch(r"(.+?)[ ,\t]+(-?\d+)", line.strip())
        if not match:
            raise ValueError(f"{path}, line {number}: expected `path label`, got {line.strip()!r}")
        paths.append(match[1])
        numbers.append(int(match[2]))
    frame_counts = [re.fullmatch(r"(.+?)[ ,\t]+\d+", name) for name in paths]
    if all(match and Path(match[1]).suffix not in VIDEO_SUFFIXES for match in frame_counts):
        paths = [match[1] for match in frame_counts if match]
    names = class_names or [str(number) for number in range(max(numbers, default=-1) + 1)]
    if numbers and not max(numbers) < len(names):
        raise ValueError(f"{path} has label {max(numbers)}, but there are {len(names)} class names")
    labels = [number if number >= 0 else None for number in numbers]
    return _join([os.path.join(root, name) for name in paths], labels, names)


def read_ssv2(path: Path, *, root: Path, class_names: list[str] | None) -> SampleList:
    """Read the JSON of Something-Something V2; `*labels.json` beside it names the classes.

    The label of a clip is its template, whose `[something]` lacks its brackets in the labels.
    """
    entries = json.loads(path.read_text(encoding="utf-8"))
    if not isinstance(entries, list) or not all("id" in entry for entry in entries):
        raise ValueError(f'{path} must hold a list of entries with an "id"')
    beside = sorted(path.parent.glob("*labels.json"))
    if class_names is None and beside:
        class_names = read_class_names(beside[0])
    labels, names = number_labels(
        [entry.get("template") for entry in entries], class_names, path=path
    )
    ids = [str(entry["id"]) for entry in entries]
    return _join(find_by_id(ids, root, suffix=".webm"), labels, names)


def read_ucf101(path: Path, *, root: Path, class_names: list[str] | None) -> SampleList:
    """Read a list of UCF101, `Class/v_Class_g01_c01.avi 1`, or without numbers as in tests.

    The class is that of the folder; `classInd.txt` beside the list gives the order.
    """
    lines = path.read_text(encoding="utf-8").splitlines()
    paths = [line.split()[0] for line in lines if line.strip()]
    beside = sorted(path.parent.glob("*classInd.txt"))
    if class_names is None and beside:
        class_names = read_class_names(beside[0])
    labels, names = number_labels([name.split("/")[0] for name in paths], class_names, path=path)
    return _join([os.path.join(root, name) for name in paths], labels, names)


def _names_by_number(numbers: dict[str, int]) -> list[str]:
    """Return names by number; numbers that a part of a data set lacks are named by themselves."""
    names = [str(number) for number in range(max(numbers.values()) + 1)]
    for name, number in numbers.items():
        names[number] = name
    return names


def _join(paths: list[str], labels: list[int | None], names: list[str]) -> SampleList:
    return SampleList([Sample(*pair) for pair in zip(paths, labels, strict=True)], names)


FORMATS: dict[str, Callable[..., SampleList]] = {
    "folder": read_folder,
    "kinetics": read_kinetics,
    "list": read_list,
    "ssv2": read_ssv2,
    "table": read_table,
    "ucf101": read_ucf101,
}


def read_annotations(
    path: str | os.PathLike[str],
    *,
    root: str | os.PathLike[str] | None = None,
    annotation_format: str | None = None,
    class_names: str | os.PathLike[str] | None = None,
    table: TableLayout | None = None,
) -> SampleList:
    """Read a list of labelled videos.

    Args:
        path: a file of one of the `FORMATS`, or a folder of class folders.
        root: folder that relative paths start from, or in which videos are looked for by their
            id; the folder of the file if not given.
        annotation_format: one of `FORMATS`; told from the content if not given.
        class_names: file with the names in the order of their labels, where the format does not
            say it.
        table: the columns of a table and the rows that count.
    """
    path = Path(path)
    if not path.exists():
        raise FileNotFoundError(f"no annotations at {path}")
    if annotation_format is None:
        annotation_format = "table" if table is not None else sniff_format(path)
    if annotation_format not in FORMATS:
        raise ValueError(
            f"annotation_format must be one of {', '.join(FORMATS)}, got {annotation_format!r}"
        )
    names = read_class_names(class_names) if class_names is not None else None
    base = Path(root) if root is not None else path.parent
    if annotation_format == "table":
        return read_table(path, root=base, class_names=names, layout=table or TableLayout())
    return FORMATS[annotation_format](path, root=base, class_names=names)


def sniff_format(path: Path) -> str:
    """Tell the format of annotations from how they begin."""
    if path.is_dir():
        return "folder"
    with path.open(encoding="utf-8", errors="replace") as file:
        first = next((line.strip() for line in file if line.strip()), "")
    if not first:
        raise ValueError(f"{path} is empty")
    if first.startswith(("[", "{")):
        return "ssv2"
    if {"youtube_id", "time_start"} <= set(first.split(",")):
        return "kinetics"
    if has_header(path, TableLayout()):
        return "table"
    if re.fullmatch(r"(\w+)/v_\1_g\d+_c\d+\.\w+( \d+)?", first, re.IGNORECASE):
        return "ucf101"
    if re.search(r"[ ,\t]-?\d+$", first):
        return "list"
    raise ValueError(
        f"cannot tell the format of {path} from its first line {first[:80]!r}; "
        f"name it: annotation_format is one of {', '.join(FORMATS)}"
    )
