"""Which files of a folder are videos, and where the video of an id lies."""

from __future__ import annotations

import os
from collections.abc import Iterator
from pathlib import Path

from tokenselect.data.frame_folder import PICTURE_SUFFIXES

VIDEO_SUFFIXES = {
    ".avi", ".flv", ".m4v", ".mkv", ".mov", ".mp4", ".mpeg", ".mpg", ".ts", ".webm", ".wmv",
}  # fmt: skip


def list_videos(folder: str | os.PathLike[str]) -> list[str]:
    """List the videos under a folder, sorted: files, and folders that hold pictures."""
    return sorted(_walk(os.fspath(folder)))


def _walk(folder: str) -> Iterator[str]:
    for place, folders, files in os.walk(folder, followlinks=True):
        if any(Path(name).suffix.lower() in PICTURE_SUFFIXES for name in files):
            folders.clear()
            yield place
            continue
        for name in files:
            if Path(name).suffix.lower() in VIDEO_SUFFIXES:
                yield os.path.join(place, name)


def find_by_id(ids: list[str], root: str | os.PathLike[str], *, suffix: str) -> list[str]:
    """Return the video of each id: it may lie in a folder of its split or class, in any format.

    An id without a video gets the path where it was to be expected, so that a check can name it.
    """
    found = {Path(path).stem: path for path in list_videos(root)}
    return [found.get(name, os.path.join(os.fspath(root), name + suffix)) for name in ids]
