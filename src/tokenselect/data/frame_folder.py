"""Videos stored as folders of numbered pictures, and which files of a folder are videos."""

from __future__ import annotations

import os
import re
from collections.abc import Iterator, Sequence
from functools import cached_property
from pathlib import Path

import numpy as np
import torch
from PIL import Image, UnidentifiedImageError
from torch import Tensor

from tokenselect.data.errors import VideoError

PICTURE_SUFFIXES = {".jpg", ".jpeg", ".png", ".bmp", ".webp"}


class FrameFolder:
    """Frames of a folder of pictures, in the order of the numbers in their names.

    Args:
        path: the folder, with files such as `img_00001.jpg`.
        fps: at which the pictures were taken; it only sets `times`.
    """

    def __init__(self, path: str | os.PathLike[str], *, fps: float = 30.0):
        self.path = os.fspath(path)
        self.files = list_pictures(self.path)
        if not self.files:
            raise VideoError(self.path, "has no pictures in it")
        self.num_frames = len(self.files)
        self.fps = fps
        self.times = np.arange(self.num_frames) / fps

    @cached_property
    def size(self) -> tuple[int, int]:
        """Height and width of the first picture."""
        height, width = self.read([0]).shape[-2:]
        return height, width

    def read(self, indices: Sequence[int]) -> Tensor:
        """Return (t, 3, h, w) uint8 frames in the order of `indices`."""
        pictures = [self._read_one(index) for index in indices]
        sizes = {picture.shape for picture in pictures}
        if len(sizes) != 1:
            raise VideoError(self.path, f"has pictures of different sizes: {sorted(sizes)}")
        return torch.from_numpy(np.stack(pictures)).permute(0, 3, 1, 2)

    def _read_one(self, index: int) -> np.ndarray:
        if not 0 <= index < self.num_frames:
            raise IndexError(f"frame {index} asked of {self.path}, which has {self.num_frames}")
        try:
            with Image.open(self.files[index]) as picture:
                return np.asarray(picture.convert("RGB"))
        except (OSError, UnidentifiedImageError) as error:
            name = self.files[index].name
            raise VideoError(self.path, f"has a broken picture, {name}: {error}") from error

    def verify(self) -> None:
        """Open every picture and keep none; raise `VideoError` where one is broken."""
        for index in range(self.num_frames):
            self._read_one(index)

    def close(self) -> None:
        """Nothing is kept open."""

    def __repr__(self) -> str:
        return f"FrameFolder({self.path!r}, {self.num_frames} frames)"


def list_pictures(path: str | os.PathLike[str]) -> list[Path]:
    """List the pictures of a folder by the numbers in their names: frame_2 before frame_10."""
    if not Path(path).is_dir():
        raise VideoError(path, "is not a folder")
    files = (file for file in Path(path).iterdir() if file.suffix.lower() in PICTURE_SUFFIXES)
    return sorted(files, key=lambda file: _natural_key(file.name))


def _natural_key(name: str) -> list[tuple[int, str]]:
    parts = re.findall(r"\d+|\D+", name)
    return [(int(part), "") if part.isdigit() else (-1, part) for part in parts]


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
