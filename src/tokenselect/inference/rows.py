"""The answers for many videos as a file: one row per video, restartable, never mixed."""

import csv
import json
import os
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import asdict, dataclass, fields
from pathlib import Path
from typing import Any, Self

from tokenselect.extras import require
from tokenselect.locking import holding, write_whole, writing

SUFFIXES = (".parquet", ".csv", ".jsonl")
LISTS = ("labels", "probabilities", "timeline")


@dataclass(frozen=True)
class Row:
    """The answer for a video."""

    video: str  # as it was named
    label: str | None = None  # most likely class; None if the video could not be read
    probability: float | None = None  # of that class
    truth: str | None = None  # the class whose folder the video lies in, if it lies in one
    seconds: float | None = None  # length of the video
    labels: tuple[str, ...] = ()  # most likely classes in order
    probabilities: tuple[float, ...] = ()  # of those classes
    timeline: tuple[Mapping[str, Any], ...] = ()  # start, end, label, probability of each window
    error: str | None = None  # why there is no answer, or None

    def to_dict(self) -> dict[str, Any]:
        """Give plain values, as JSON and tables hold them."""
        return {**asdict(self), **{name: list(getattr(self, name)) for name in LISTS}}

    @classmethod
    def from_dict(cls, values: Mapping[str, Any]) -> Self:
        """Make a row of plain values."""
        return cls(**{**values, **{name: tuple(values[name] or ()) for name in LISTS}})


@dataclass(frozen=True)
class Summary:
    """How a run ended."""

    path: Path  # the results
    total: int  # rows in it
    skipped: int  # rows that were there before
    errors: int  # videos that could not be read


Engine = Callable[[Sequence[str]], Iterable[Row]]


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
        out: .parquet, .csv or .jsonl.
        engine: answers for the videos it is given, in any order.
        settings: what the answers depend on; rows of others are never mixed in.
        on_row: told how many of how many are done.
    """
    if out.suffix not in SUFFIXES:
        raise ValueError(f"results go to {', '.join(SUFFIXES)}, got {out.name!r}")
    if out.suffix == ".parquet":
        _pyarrow()  # is missed before any work is done
    wanted = dict.fromkeys(videos)
    with holding(out):
        done = {row.video: row for row in read_rows(out, settings)} if out.exists() else {}
        journal = out.with_name(f"{out.name}.part")
        done |= begin_journal(journal, settings)
        left = [video for video in wanted if printable(video) not in done]
        for row in engine(left) if left else ():
            append(journal, row.to_dict())
            done[row.video] = row
            if on_row is not None:
                on_row(len(done), len(wanted))
        named = [printable(video) for video in wanted]
        others = [row for video, row in done.items() if video not in set(named)]
        rows = [*(done[video] for video in named), *others]
        write_rows(out, rows, settings=settings)
        journal.unlink()
    errors = sum(row.error is not None for row in rows)
    return Summary(out, len(rows), len(wanted) - len(left), errors)


def printable(name: str) -> str:
    """Write a file's name so that any table can hold it, whatever bytes it is made of."""
    return os.fsencode(name).decode("utf-8", "backslashreplace")


def append(journal: Path, values: Mapping[str, Any]) -> None:
    """Keep a line for good."""
    with naming(journal, "be written"), journal.open("a", encoding="utf-8") as file:
        file.write(json.dumps(values) + "\n")


def begin_journal(path: Path, settings: Mapping[str, Any]) -> dict[str, Row]:
    """Give the rows of an unfinished run, which stand beside the file they will end up in.

    The first line says what they are made with. A last one that was cut off is dropped.
    """
    text = path.read_bytes() if path.exists() else b""
    whole = text[: text.rfind(b"\n") + 1]
    if whole != text:
        os.truncate(path, len(whole))  # which a full disk allows, and loses no row
    if not whole:
        append(path, {"settings": dict(settings)})
        return {}
    with naming(path, "be read"):
        first, *lines = (json.loads(line) for line in whole.splitlines())
        made_with = first["settings"]
        rows = {values["video"]: Row.from_dict(values) for values in lines}
    check_settings(path, made_with, settings)
    return rows


@contextmanager
def naming(path: Path, what: str) -> Iterator[None]:
    """Name the file in what goes wrong: the disk is full, or someone has edited it."""
    try:
        yield
    except OSError as error:
        if str(path) in str(error):
            raise
        raise OSError(f"{path} could not {what}: {error.strerror or error}") from error
    except (ValueError, LookupError, TypeError, AttributeError) as error:
        raise ValueError(f"{path} could not {what}: {error!r}; repair or delete it") from error


def check_settings(path: Path, made_with: Mapping[str, Any], settings: Mapping[str, Any]) -> None:
    """Refuse to mix rows that were made with other settings."""
    names = sorted(name for name in settings if made_with.get(name) != settings[name])
    if names:
        theirs = ", ".join(f"{name} {made_with.get(name, 'unknown')}" for name in names)
        raise ValueError(f"{path} holds rows made with {theirs}: use another file, or delete it")


def settings_file(path: Path) -> Path:
    """Give the file beside a .csv or .jsonl that says what made its rows."""
    return path.with_name(f"{path.name}.settings.json")


def write_rows(path: Path, rows: Sequence[Row], *, settings: Mapping[str, Any]) -> None:
    """Write rows and what made them, whole or not at all."""
    values = [row.to_dict() for row in rows]
    if path.suffix != ".parquet":
        write_whole(settings_file(path), json.dumps(dict(settings), indent=2) + "\n")
    with naming(path, "be written"), writing(path) as unfinished:
        if path.suffix == ".parquet":
            pyarrow, parquet = _pyarrow()
            schema = _schema(pyarrow).with_metadata({"tokenselect": json.dumps(dict(settings))})
            parquet.write_table(pyarrow.Table.from_pylist(values, schema=schema), unfinished)
            return
        with unfinished.open("w", encoding="utf-8", newline="") as file:
            if path.suffix == ".csv":
                _write_csv(file, values)
            else:
                file.writelines(json.dumps(v, ensure_ascii=False) + "\n" for v in values)


def read_rows(path: Path, settings: Mapping[str, Any]) -> list[Row]:
    """Read what `write_rows` wrote with the same settings."""
    with naming(path, "be read"):
        if path.suffix == ".parquet":
            table = _pyarrow()[1].read_table(path)
            made_with = json.loads((table.schema.metadata or {}).get(b"tokenselect", b"{}"))
            rows = table.to_pylist()
        else:
            beside = settings_file(path)
            made_with = json.loads(beside.read_text()) if beside.exists() else {}
            with path.open(encoding="utf-8", newline="") as file:
                if path.suffix == ".csv":
                    rows = _read_csv(file)
                else:
                    rows = [json.loads(line) for line in file.read().split("\n") if line]
        found = [Row.from_dict(values) for values in rows]
    check_settings(path, made_with, settings)
    return found


def _write_csv(file: Any, values: Iterable[Mapping[str, Any]]) -> None:
    writer = csv.DictWriter(file, [field.name for field in fields(Row)])
    writer.writeheader()
    for row in values:
        lists = {name: json.dumps(row[name], ensure_ascii=False) for name in LISTS if row[name]}
        writer.writerow({**row, **dict.fromkeys(LISTS), **lists})


def _read_csv(file: Any) -> list[dict[str, Any]]:
    kinds: dict[str, Callable[[str], Any]] = {"probability": float, "seconds": float}
    kinds |= dict.fromkeys(LISTS, json.loads)
    return [
        {name: kinds.get(name, str)(text) if text else None for name, text in row.items()}
        for row in csv.DictReader(file)
    ]


def _schema(pyarrow: Any) -> Any:
    text, number = pyarrow.string(), pyarrow.float64()
    moment = {"start": number, "end": number, "label": text, "probability": number}
    kinds = {"probability": number, "seconds": number, "labels": pyarrow.list_(text)}
    kinds["probabilities"] = pyarrow.list_(number)
    kinds["timeline"] = pyarrow.list_(pyarrow.struct(moment))
    return pyarrow.schema({field.name: kinds.get(field.name, text) for field in fields(Row)})


def _pyarrow() -> tuple[Any, Any]:
    purpose = "a Parquet file (.csv and .jsonl work without)"
    parquet = require("pyarrow.parquet", extra="parquet", purpose=purpose)
    return require("pyarrow", extra="parquet", purpose=purpose), parquet
