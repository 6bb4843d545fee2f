"""Rows as a file: Parquet for many, JSON lines for those without pyarrow."""

from __future__ import annotations

import importlib
import json
import os
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from tokenselect.bulk.journal import check_settings, read_row
from tokenselect.bulk.rows import Row

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
    """Import pyarrow, or say how to do without it."""
    try:
        parquet = importlib.import_module("pyarrow.parquet")
    except ImportError as error:
        raise ImportError(
            "Parquet needs pyarrow: pip install 'tokenselect[parquet]', or write to .jsonl"
        ) from error
    return importlib.import_module("pyarrow"), parquet
