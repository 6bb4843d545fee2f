"""Samples and labels: which video has which class, and what the classes are called.

Class names are the contract between the parts of a data set, a trained model and its tests: labels
are numbers, but they are always matched by name.
"""

import json
import re
from collections import Counter
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from itertools import repeat
from pathlib import Path
from typing import Any, NamedTuple

from tokenselect.data.frame_source import PathOrStr, escape_unprintable

MAX_CLASSES = 100_000  # a larger label is a mistake, and would cost gigabytes of names


class Sample(NamedTuple):
    """One labelled video, or part of a video."""

    path: str  # file, or folder of frames
    label: int | None  # class number; None where nothing says it (test sets)
    # the first frame of the part and the one after its last; None for the whole video
    span: tuple[int, int] | None = None


@dataclass(frozen=True)
class SampleList:
    """What every annotation format is read into."""

    samples: list[Sample]  # the videos, in the order of the file
    class_names: list[str]  # the name of each label; a bare number where the format has no names

    @property
    def num_classes(self) -> int:
        """How many classes a model for this set tells apart."""
        return len(self.class_names)

    def __len__(self) -> int:
        return len(self.samples)


def read_text(path: PathOrStr) -> str:
    """Read UTF-8 with or without byte order marks; paths in another encoding keep their bytes."""
    content = Path(path).read_bytes()
    if content.startswith((b"\xff\xfe", b"\xfe\xff")):
        raise ValueError(f"{path} is UTF-16: save it as UTF-8")
    return content.decode("utf-8", errors="surrogateescape").lstrip("\ufeff")


def read_text_lines(path: PathOrStr) -> list[tuple[int, str]]:
    """Return the lines that are not blank with their numbers; nothing but newlines ends a line."""
    lines = (line.strip() for line in read_text(path).split("\n"))
    return [(number, line) for number, line in enumerate(lines, 1) if line]


def read_json(path: PathOrStr) -> Any:
    """Read JSON; what is wrong with it is said with the name of the file."""
    try:
        return json.loads(read_text(path))
    except (ValueError, RecursionError) as error:
        raise ValueError(f"{path} is not valid JSON: {error}") from error


def read_class_names(path: PathOrStr) -> list[str]:
    """Read the names in the order of their labels.

    Known are one name per line, numbered lines (`classInd.txt` of UCF101), and JSON: a list, or a
    mapping between names and numbers (`labels.json` of Something-Something).
    """
    if Path(path).suffix == ".json":
        content = read_json(path)
        if isinstance(content, list):
            return [str(name) for name in content]
        if isinstance(content, dict):
            pairs = [(str(name), str(number)) for name, number in content.items()]
            if all(re.fullmatch(r"[0-9]{1,9}", name) for name, _ in pairs):
                pairs = [(name, number) for number, name in pairs]
            if all(re.fullmatch(r"[0-9]{1,9}", number) for _, number in pairs):
                return [name for name, _ in sorted(pairs, key=lambda pair: int(pair[1]))]
        raise ValueError(f"{path} must hold a list of class names, or map them to numbers")
    lines = [line for _, line in read_text_lines(path)]
    numbered = [re.fullmatch(r"([0-9]{1,9})[ \t,]+(.+)", line) for line in lines]
    if not all(numbered):
        return lines
    return [name for _, name in sorted((int(match[1]), match[2]) for match in numbered if match)]


def sort_names(names: Iterable[str]) -> list[str]:
    """Sort the different names, as numbers if they all are."""
    different = set(names)
    if all(re.fullmatch(r"-?[0-9]{1,18}", name) for name in different):
        return sorted(different, key=int)
    return sorted(different)


def label_samples(
    paths: Iterable[str],
    labels: Sequence[str | None],
    class_names: Sequence[str] | None,
    source: PathOrStr,
    *,
    spans: Iterable[tuple[int, int] | None] = repeat(None),
) -> SampleList:
    """Number the names of classes; if none are given, the sorted different labels are the classes.

    A class without a video is fine, a video of an unknown class is an error. Where no name is the
    same to the letter, case and the brackets of Something-Something templates do not count.
    """
    if class_names is None:
        class_names = sort_names(label for label in labels if label is not None)
    check_class_names(class_names, path=source)
    exact = {name: number for number, name in enumerate(class_names)}
    alike = Counter(map(fold, class_names))  # names that differ by case alone are met to the letter
    folded = {fold(name): number for name, number in exact.items() if alike[fold(name)] == 1}
    named = {name for name in labels if name is not None}
    numbers = {name: exact.get(name, folded.get(fold(name), -1)) for name in named}
    unknown = sort_names(name for name, number in numbers.items() if number < 0)
    if unknown:
        more = f" and {len(unknown) - 1} more" if len(unknown) > 1 else ""
        raise ValueError(
            f"{source} has the class {escape_unprintable(unknown[0])!r}{more}, not among the "
            f"{len(class_names)} class names: {shorten(class_names)}"
        )
    found = (None if name is None else numbers[name] for name in labels)
    return SampleList(list(map(Sample, paths, found, spans)), list(class_names))


def check_class_names(class_names: Sequence[str], *, path: PathOrStr) -> None:
    """Refuse names that occur twice or would break a line."""
    for name, count in Counter(class_names).items():
        shown = escape_unprintable(name)
        if count > 1:
            raise ValueError(f"{path}: two classes are called {shown[:80]!r}")
        if shown != name:
            raise ValueError(f"{path}: the class name {shown[:80]!r} is not plain text")


def fold(name: str) -> str:
    """Return what two writings of one class have in common."""
    return re.sub(r"[\[\]]", "", name).replace("_", " ").strip().casefold()


def shorten(names: Sequence[str], *, most: int = 12) -> str:
    """Join the first of many names for a message."""
    more = f" … ({len(names)} in all)" if len(names) > most else ""
    return escape_unprintable(", ".join(names[:most]) + more)
