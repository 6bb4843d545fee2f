"""A data set as a list: which video has which label, and what the labels are called."""

from __future__ import annotations

from dataclasses import dataclass
from typing import NamedTuple


class Sample(NamedTuple):
    """One labelled video; the label is None where nothing says it (test sets)."""

    path: str
    label: int | None


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
