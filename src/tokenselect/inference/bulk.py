"""Many videos: one row each, restartable; what is done is skipped, what fails costs a row."""

from __future__ import annotations

import json
import os
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

import torch
from torch import Tensor, nn

from tokenselect.checkpoints import info_of
from tokenselect.data import VideoError
from tokenselect.extras import require
from tokenselect.inference.preprocessor import Preprocessor
from tokenselect.measure.accuracy import score_views

TOP = 5
EXPECTED = (VideoError, OSError, ValueError, RuntimeError)  # of a file, not of a program


@dataclass(frozen=True)
class Row:
    """The answer for a video.

    Attributes:
        video: as it was named.
        label: most likely class; None if the video could not be read.
        probability: of that class.
        labels: most likely classes in order.
        probabilities: of those classes.
        error: why there is no answer, or None.
    """

    video: str
    label: str | None = None
    probability: float | None = None
    labels: tuple[str, ...] = ()
    probabilities: tuple[float, ...] = ()
    error: str | None = None

    def to_dict(self) -> dict[str, Any]:
        """Give plain values, as JSON and tables hold them."""
        values = asdict(self)
        return {**values, "labels": list(self.labels), "probabilities": list(self.probabilities)}


@dataclass(frozen=True)
class Reading:
    """A video's views, (v, 3, frames, height, width), or why it could not be read."""

    video: str
    views: Tensor | None = None
    error: str | None = None


def read_video(video: str, preprocess: Preprocessor, *, clips: int, crops: int) -> Reading:
    """Cut the views of a video; one that cannot be read gives its error instead."""
    try:
        return Reading(video, preprocess(video, clips=clips, crops=crops)["video"])
    except EXPECTED as error:
        return Reading(video, error=str(error) or type(error).__name__)


@torch.inference_mode()
def answer(model: nn.Module, reading: Reading) -> Row:
    """Classify a video by the average of its views."""
    if reading.views is None:
        return Row(reading.video, error=reading.error)
    views = reading.views.to(next(model.parameters()).device)
    scores = score_views(model, views[None])[0].cpu()
    values, classes = scores.topk(min(TOP, len(scores)))
    labels = tuple(info_of(model).id2label[number] for number in classes.tolist())
    probabilities = tuple(round(value, 6) for value in values.tolist())
    return Row(reading.video, labels[0], probabilities[0], labels, probabilities)


class Journal:
    """The rows of an unfinished run, beside the file they will end up in.

    Args:
        path: the file.
        settings: what the rows were made with; those of other settings are not mixed in.
    """

    def __init__(self, path: Path, settings: Mapping[str, Any]) -> None:
        self.path = path
        self.settings = dict(settings)
        self.rows: dict[str, Row] = {}
        if path.exists():
            self._read()
        else:
            path.parent.mkdir(parents=True, exist_ok=True)
            self._append({"settings": self.settings})

    def add(self, row: Row) -> None:
        """Keep a row for good."""
        self._append(row.to_dict())
        self.rows[row.video] = row

    def _append(self, values: Mapping[str, Any]) -> None:
        with self.path.open("a") as file:
            file.write(json.dumps(values, ensure_ascii=False) + "\n")

    def _read(self) -> None:
        """Take the whole lines over; a last one that was cut off is dropped from the file."""
        text = self.path.read_bytes()
        whole = text[: text.rfind(b"\n") + 1]
        if whole != text:
            self.path.write_bytes(whole)
        lines = [json.loads(line) for line in whole.splitlines()]
        if not lines:
            self._append({"settings": self.settings})
            return
        check_settings(self.path, lines[0]["settings"], self.settings)
        for values in lines[1:]:
            row = read_row(values)
            self.rows[row.video] = row


def check_settings(path: Path, made_with: Mapping[str, Any], settings: Mapping[str, Any]) -> None:
    """Refuse to mix rows that were made with other settings."""
    names = sorted(name for name in settings if made_with.get(name) != settings[name])
    if names:
        theirs = ", ".join(f"{name} {made_with.get(name)}" for name in names)
        raise ValueError(f"{path} holds rows made with {theirs}: write elsewhere, or delete it")


def read_row(values: Mapping[str, Any]) -> Row:
    """Make a row of plain values."""
    listed = {name: tuple(values[name]) for name in ("labels", "probabilities")}
    return Row(**{**values, **listed})


SUFFIXES = (".parquet", ".jsonl")


def check_table(path: Path) -> None:
    """Refuse a kind of file that cannot be written, before any work is done."""
    if path.suffix not in SUFFIXES:
        raise ValueError(f"results go to {' or '.join(SUFFIXES)}, got {path.name!r}")
    if path.suffix == ".parquet":
        _pyarrow()


def write_table(path: Path, rows: Sequence[Row], *, settings: Mapping[str, Any]) -> None:
    """Write rows, whole or not at all.

    Args:
        path: ending in one of `SUFFIXES`.
        rows: in order.
        settings: kept in a Parquet file's metadata.
    """
    unfinished = path.with_name(f".{os.getpid()}.{path.name}")
    values = [row.to_dict() for row in rows]
    if path.suffix == ".parquet":
        pyarrow, parquet = _pyarrow()
        schema = _schema(pyarrow).with_metadata({"tokenselect": json.dumps(dict(settings))})
        parquet.write_table(pyarrow.Table.from_pylist(values, schema=schema), unfinished)
    else:
        lines = [json.dumps(row, ensure_ascii=False) + "\n" for row in values]
        unfinished.write_text("".join(lines))
    os.replace(unfinished, path)


def read_table(path: Path, settings: Mapping[str, Any]) -> list[Row]:
    """Read what `write_table` wrote; a Parquet file must have been written with the settings."""
    if path.suffix == ".parquet":
        _, parquet = _pyarrow()
        table = parquet.read_table(path)
        kept = json.loads((table.schema.metadata or {}).get(b"tokenselect", b"{}"))
        check_settings(path, kept, settings)
        return [read_row(values) for values in table.to_pylist()]
    return [read_row(json.loads(line)) for line in path.read_text().splitlines()]


def _schema(pyarrow: Any) -> Any:
    text, number = pyarrow.string(), pyarrow.float64()
    return pyarrow.schema(
        {
            "video": text,
            "label": text,
            "probability": number,
            "labels": pyarrow.list_(text),
            "probabilities": pyarrow.list_(number),
            "error": text,
        }
    )


def _pyarrow() -> tuple[Any, Any]:
    purpose = "a Parquet file (.jsonl works without)"
    parquet = require("pyarrow.parquet", extra="parquet", purpose=purpose)
    return require("pyarrow", extra="parquet", purpose=purpose), parquet


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
