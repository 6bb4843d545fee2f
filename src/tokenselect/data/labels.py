"""Samples and labels: which video has which class, and what the classes are called."""

from __future__ import annotations

import json
import os
import re
from collections.abc import Iterable
from dataclasses import dataclass
from pathlib import Path
from typing import NamedTuple


def read_class_names(path: str | os.PathLike[str]) -> list[str]:
    """Read the names in the order of their labels.

    Known are one name a line, numbered lines (`classInd.txt` of UCF101), and JSON: a list, or a
    mapping between names and numbers (`labels.json` of Something-Something).
    """
    text = Path(path).read_text(encoding="utf-8")
    if Path(path).suffix == ".json":
        return _names_from_json(json.loads(text), path)
    lines = [line.strip() for line in text.splitlines() if line.strip()]
    numbered = [re.fullmatch(r"(\d+)[ \t,]+(.+)", line) for line in lines]
    if not all(numbered):
        return lines
    pairs = sorted((int(match[1]), match[2]) for match in numbered if match)
    return [name for _, name in pairs]


def _names_from_json(content: object, path: str | os.PathLike[str]) -> list[str]:
    if isinstance(content, list):
        return [str(name) for name in content]
    if isinstance(content, dict):
        pairs = list(content.items())
        if all(str(key).isdigit() for key, _ in pairs):
            pairs = [(name, key) for key, name in pairs]
        return [str(name) for name, number in sorted(pairs, key=lambda pair: int(pair[1]))]
    raise ValueError(f"{path} must hold a list or a mapping of class names")


def sort_names(names: Iterable[str]) -> list[str]:
    """Sort the different names, as numbers if they all are."""
    different = set(names)
    if all(re.fullmatch(r"-?\d+", name) for name in different):
        return sorted(different, key=int)
    return sorted(different)


def number_labels(
    labels: Iterable[str | None], class_names: list[str] | None, *, path: str | os.PathLike[str]
) -> tuple[list[int | None], list[str]]:
    """Turn names into numbers; without given names, the sorted different ones are the classes.

    Upper and lower case and the brackets of Something-Something templates do not count.
    """
    labels = list(labels)
    names = class_names or sort_names(label for label in labels if label is not None)
    numbers = {fold(name): number for number, name in enumerate(names)}
    unknown = {label for label in labels if label is not None and fold(label) not in numbers}
    if unknown:
        raise ValueError(
            f"{path} has labels that are not among the {len(names)} class names, "
            f"such as {min(unknown)!r}"
        )
    return [None if label is None else numbers[fold(label)] for label in labels], names


def fold(name: str) -> str:
    """Return what two writings of one class have in common."""
    return re.sub(r"[\[\]]", "", name).replace("_", " ").strip().casefold()


class Sample(NamedTuple):
    """One labelled video, or part of a video.

    Attributes:
        path: file, or folder of frames.
        label: class number; None where nothing says it (test sets).
        span: the first frame of the part and the one after its last; None for the whole video.
    """

    path: str
    label: int | None
    span: tuple[int, int] | None = None


@dataclass(frozen=True)
class SampleList:
    """What every annotation format is read into.

    Attributes:
        samples: the videos, in the order of the file.
        class_names: the name of each label; a bare number where the format has no names.
    """

    samples: list[Sample]
    class_names: list[str]

    @property
    def num_classes(self) -> int:
        """How many classes a model for this set tells apart."""
        return len(self.class_names)

    def __len__(self) -> int:
        return len(self.samples)
