"""Videos stored as folders of numbered pictures, and which files of a folder are videos.

Pillow reads the pictures. The walk is ours: `os.walk` follows a loop of links without end.
"""

import os
import re
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from functools import cached_property
from pathlib import Path

import numpy as np
import torch
from PIL import Image
from torch import Tensor

from tokenselect.data.frame_source import FrameSource, PathOrStr, VideoError, check_frame_size

PICTURE_SUFFIXES = {".jpg", ".jpeg", ".png", ".bmp", ".webp"}
VIDEO_SUFFIXES = {
    ".avi", ".flv", ".m4v", ".mkv", ".mov", ".mp4", ".mpeg", ".mpg", ".ts", ".webm", ".wmv",
}  # fmt: skip


class FrameFolder(FrameSource):
    """Frames of a folder of pictures (`img_00001.jpg`) in the order of the numbers in their names.

    `fps`, at which the pictures were taken, only sets `times`.
    """

    def __init__(self, path: PathOrStr, *, fps: float = 30.0):
        self.files = list_pictures(path)
        if not self.files:
            raise VideoError(path, "has no pictures in it")
        super().__init__(path, times=np.arange(len(self.files)) / fps, fps=fps)

    @cached_property
    def size(self) -> tuple[int, int]:
        """Height and width of the first picture, which all others must have."""
        with self._open(0) as picture:
            return picture.height, picture.width

    def stream(self, numbers: Sequence[int]) -> Iterator[tuple[list[int], Tensor]]:
        """Read the numbered pictures one by one."""
        height, width = self.size
        for number in numbers:
            with self._open(number) as picture:
                if picture.size != (width, height):
                    raise VideoError(
                        self.path,
                        f"has pictures of different sizes: {self.files[0].name} is {width} × "
                        f"{height}, {self.files[number].name} is {picture.width} × "
                        f"{picture.height}",
                    )
                pixels = torch.from_numpy(np.array(picture.convert("RGB")))
            yield [number], pixels.permute(2, 0, 1).unsqueeze(0)

    @contextmanager
    def _open(self, number: int) -> Iterator[Image.Image]:
        """Open a picture whose size is fit to be read; its pixels are not read yet."""
        file = self.files[number]
        if not file.is_file():  # a pipe would be waited for without end
            raise VideoError(self.path, f"has a broken picture, {file.name}: it is no file")
        try:
            with Image.open(file) as picture:
                check_frame_size(str(file), picture.height, picture.width)
                yield picture
        except VideoError:
            raise
        except Exception as error:  # Pillow's readers raise whatever they trip over
            raise VideoError(self.path, f"has a broken picture, {file.name}: {error}") from error


def list_pictures(path: PathOrStr) -> list[Path]:
    """List the pictures of a folder by the numbers in their names: frame_2 before frame_10."""
    if not Path(path).is_dir():
        raise VideoError(path, "is not a folder")
    files = (file for file in Path(path).iterdir() if file.suffix.lower() in PICTURE_SUFFIXES)
    return sorted(files, key=lambda file: _natural_key(file.name))


def _natural_key(name: str) -> list[tuple[int, str]]:
    parts = re.findall(r"[0-9]+|[^0-9]+", name)
    return [(int(part), "") if part[0] in "0123456789" else (-1, part) for part in parts]


def walk_videos(folder: PathOrStr) -> list[str]:
    """List the videos under a folder, sorted: files, and folders that hold pictures."""
    return sorted(find_under(folder))


def find_under(folder: PathOrStr) -> Iterator[str]:
    """Give the videos under a folder as they are found.

    Links are followed, but a folder is entered once only, however many links lead there.
    """
    entered: set[tuple[int, int]] = set()
    for place, folders, files in os.walk(os.fspath(folder), followlinks=True):
        state = os.stat(place)
        if (state.st_dev, state.st_ino) in entered:
            folders.clear()
            continue
        entered.add((state.st_dev, state.st_ino))
        folders.sort()
        if any(Path(name).suffix.lower() in PICTURE_SUFFIXES for name in files):
            folders.clear()
            yield place
            continue
        for name in files:
            if Path(name).suffix.lower() in VIDEO_SUFFIXES:
                yield os.path.join(place, name)


def find_by_id(ids: list[str], root: PathOrStr, *, suffix: str) -> list[str]:
    """Return the video of each id: it may lie in a folder of its split or class, in any format.

    An id without a video gets the path where it was to be expected, so that a check can name it.
    """
    found = {Path(path).stem: path for path in walk_videos(root)}
    return [found.get(name, os.path.join(os.fspath(root), name + suffix)) for name in ids]
