"""Videos stored as folders of numbered pictures, and which files of a folder are videos.

Pillow reads the pictures. The walk is ours: `os.walk` follows a loop of links without end.
"""

from __future__ import annotations

import os
import re
from collections.abc import Iterator, Sequence
from functools import cached_property
from pathlib import Path

import numpy as np
import torch
from PIL import Image
from torch import Tensor

from tokenselect.data.frame_source import FrameSource, VideoError, check_frame_size

PICTURE_SUFFIXES = {".jpg", ".jpeg", ".png", ".bmp", ".webp"}
VIDEO_SUFFIXES = {
    ".avi", ".flv", ".m4v", ".mkv", ".mov", ".mp4", ".mpeg", ".mpg", ".ts", ".webm", ".wmv",
}  # fmt: skip


class FrameFolder(FrameSource):
    """Frames of a folder of pictures, in the order of the numbers in their names.

    Args:
        path: the folder, with files such as `img_00001.jpg`.
        fps: at which the pictures were taken; it only sets `times`.
    """

    def __init__(self, path: str | os.PathLike[str], *, fps: float = 30.0):
        self.files = list_pictures(path)
        if not self.files:
            raise VideoError(path, "has no pictures in it")
        super().__init__(path, times=np.arange(len(self.files)) / fps, fps=fps)

    @cached_property
    def size(self) -> tuple[int, int]:
        """Height and width of the first picture, which all others must have."""
        return self._open(0)[1]

    def stream(self, numbers: Sequence[int]) -> Iterator[tuple[int, Tensor]]:
        """Read the numbered pictures one by one."""
        for number in numbers:
            pixels = torch.from_numpy(self._read_one(number))
            yield number, pixels.permute(2, 0, 1).unsqueeze(0)

    def _read_one(self, number: int) -> np.ndarray:
        picture, size = self._open(number)
        if size != self.size:
            picture.close()
            raise VideoError(
                self.path,
                f"has pictures of different sizes: {self.files[0].name} is {self.size[1]} × "
                f"{self.size[0]}, {self.files[number].name} is {size[1]} × {size[0]}",
            )
        try:
            with picture:
                return np.array(picture.convert("RGB"))
        except Exception as error:  # Pillow's readers raise whatever they trip over
            raise self._broken(number, error) from error

    def _open(self, number: int) -> tuple[Image.Image, tuple[int, int]]:
        """Open a picture without reading its pixels; return it with its height and width."""
        try:
            picture = Image.open(self.files[number])
        except Exception as error:  # also a picture that Pillow takes for a bomb
            raise self._broken(number, error) from error
        try:
            check_frame_size(str(self.files[number]), picture.height, picture.width)
        except VideoError:
            picture.close()
            raise
        return picture, (picture.height, picture.width)

    def _broken(self, number: int, error: Exception) -> VideoError:
        name = self.files[number].name
        return VideoError(self.path, f"has a broken picture, {name}: {error}")


def list_pictures(path: str | os.PathLike[str]) -> list[Path]:
    """List the pictures of a folder by the numbers in their names: frame_2 before frame_10."""
    if not Path(path).is_dir():
        raise VideoError(path, "is not a folder")
    files = (file for file in Path(path).iterdir() if file.suffix.lower() in PICTURE_SUFFIXES)
    return sorted(files, key=lambda file: _natural_key(file.name))


def _natural_key(name: str) -> list[tuple[int, str]]:
    parts = re.findall(r"[0-9]+|[^0-9]+", name)
    return [(int(part), "") if part[0] in "0123456789" else (-1, part) for part in parts]


def walk_videos(folder: str | os.PathLike[str]) -> list[str]:
    """List the videos under a folder, sorted: files, and folders that hold pictures.

    Links are followed, but a folder is entered once only, however many links lead there.
    """
    return sorted(_walk(os.fspath(folder)))


def holds_videos(folder: str | os.PathLike[str]) -> bool:
    """Tell whether there is any video under a folder."""
    return next(_walk(os.fspath(folder)), None) is not None


def _walk(folder: str) -> Iterator[str]:
    entered: set[tuple[int, int]] = set()
    for place, folders, files in os.walk(folder, followlinks=True):
        if (identity := _identify(place)) in entered:
            folders.clear()
            continue
        entered.add(identity)
        folders.sort()
        if any(Path(name).suffix.lower() in PICTURE_SUFFIXES for name in files):
            folders.clear()
            yield place
            continue
        for name in files:
            if Path(name).suffix.lower() in VIDEO_SUFFIXES:
                yield os.path.join(place, name)


def _identify(folder: str) -> tuple[int, int]:
    state = os.stat(folder)
    return state.st_dev, state.st_ino


def find_by_id(ids: list[str], root: str | os.PathLike[str], *, suffix: str) -> list[str]:
    """Return the video of each id: it may lie in a folder of its split or class, in any format.

    An id without a video gets the path where it was to be expected, so that a check can name it.
    """
    found = {Path(path).stem: path for path in walk_videos(root)}
    return [found.get(name, os.path.join(os.fspath(root), name + suffix)) for name in ids]
