"""Reading annotations: the format is told from the content, or named."""

from __future__ import annotations

import os
import re
from collections.abc import Callable
from pathlib import Path

from tokenselect.data.annotation_formats import (
    read_folder,
    read_kinetics,
    read_list,
    read_ssv2,
    read_ucf101,
)
from tokenselect.data.annotation_table import TableLayout, has_header, read_table
from tokenselect.data.class_names import read_class_names
from tokenselect.data.samples import SampleList

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
