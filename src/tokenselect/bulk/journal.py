"""What is done already: a line a video, appended at once, so that a killed run loses nothing."""

from __future__ import annotations

import json
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from tokenselect.bulk.rows import Row


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
