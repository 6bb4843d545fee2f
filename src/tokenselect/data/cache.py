"""Decoded videos on disk: small uint8 frames, memory-mapped, so that an epoch only reads.

Decoding a clip costs more than training a tiny model on it. The first epoch writes every video,
resized, as one file of raw frames; later epochs map it and touch only the frames they need. A file
is keyed by the video's path, size and time of change and by the settings, written under another
name and renamed, so that any number of processes may share a folder. It may be deleted any time;
what is damaged is written again, and a folder that takes no more is left alone.
"""

import hashlib
import logging
import os
import tempfile
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import BinaryIO

import numpy as np
import torch
from torch import Tensor

from tokenselect.data.frame_source import CHUNK_PIXELS, FrameSource, PathOrStr, VideoError
from tokenselect.data.transforms import resize
from tokenselect.data.video import open_video
from tokenselect.threads import shared_zeros

logger = logging.getLogger(__name__)

TIMES_HEADER = 128  # bytes that NumPy puts before an array of one dimension
LAYOUT = 1  # counts up when the content of a file changes its meaning
DAMAGED, FULL, UNWRITABLE = range(3)  # what is warned of, once each


class CachedVideo(FrameSource):
    """Frames of a video in one file of NumPy's format: (n, h, w, 3) frames, then (n,) times."""

    def __init__(self, file: Path, *, path: str):
        frames = np.load(file, mmap_mode="r")  # (n, h, w, 3)
        times_bytes = 8 * len(frames)
        end = frames.offset + frames.nbytes + TIMES_HEADER + times_bytes
        if frames.dtype != np.uint8 or frames.shape[3:] != (3,) or os.path.getsize(file) != end:
            raise ValueError(f"{file} does not hold a whole video")
        super().__init__(path, times=np.fromfile(file, "<f8", offset=end - times_bytes))
        self._frames = frames.view(np.ndarray)  # slices of a memmap itself are slow

    @property
    def size(self) -> tuple[int, int]:
        """Height and width of a frame."""
        return self._frames.shape[1], self._frames.shape[2]

    def stream(self, numbers: Sequence[int]) -> Iterator[tuple[list[int], Tensor]]:
        """Give the numbered frames, copied out of the map, many at once where they are small."""
        at_once = max(1, CHUNK_PIXELS // self.frame_pixels)
        for first in range(0, len(numbers), at_once):
            own = list(numbers[first : first + at_once])
            yield own, torch.from_numpy(self._frames[own]).permute(0, 3, 1, 2)

    def close(self) -> None:
        """Let go of the map."""
        del self._frames


class ClipCache:
    """Opens videos through a folder of decoded ones; `open` fits `VideoDataset`'s `open_source`.

    Args:
        folder: made if it does not exist; safe to delete.
        short_side: of the cached frames; None keeps the size of the video.
        max_bytes: above which no more videos are added; they are decoded each time, and a
            warning says so once.
    """

    def __init__(
        self, folder: PathOrStr, *, short_side: int | None = None, max_bytes: int = 20 << 30
    ):
        self.folder, self.short_side, self.max_bytes = Path(folder), short_side, max_bytes
        self._free_bytes = 0  # that this object may write before it counts the folder again
        # Shared with the workers of a data loader, so that one of them warns for all.
        self._warned = shared_zeros(3, dtype=torch.bool)

    def open(self, path: str) -> FrameSource:
        """Open the cached frames of a video, making them first if need be."""
        file = self.file_of(path)
        try:
            return CachedVideo(file, path=path)
        except FileNotFoundError:
            pass
        except (OSError, ValueError, EOFError):
            told = "%s in the clip cache is damaged: such videos are decoded again"
            self._warn(DAMAGED, told, file)
        source = open_video(path)
        if self._warned[UNWRITABLE] or not self._has_room_for(source):
            return source
        try:
            self._write(source, file)
            cached = CachedVideo(file, path=path)
        except VideoError:
            source.close()
            raise
        except (OSError, ValueError) as error:
            self._warn(
                UNWRITABLE,
                "the clip cache %s cannot be written (%s): videos are decoded each time they are "
                "read", self.folder, getattr(error, "strerror", None) or error,
            )  # fmt: skip
            return source
        source.close()
        return cached

    def file_of(self, path: str) -> Path:
        """Return the file that holds, or would hold, the frames of a video."""
        try:
            state = os.stat(path)
        except OSError as error:
            raise VideoError(path, "does not exist") from error
        key = (LAYOUT, self.short_side, os.path.abspath(path), state.st_size, state.st_mtime_ns)
        return self.folder / f"{hashlib.sha256(repr(key).encode()).hexdigest()[:32]}.npy"

    @property
    def num_bytes(self) -> int:
        """What the folder holds now, whoever wrote it."""
        if not self.folder.is_dir():
            return 0
        return sum(entry.stat().st_size for entry in os.scandir(self.folder) if entry.is_file())

    def _has_room_for(self, source: FrameSource) -> bool:
        needed = cached_bytes(source.num_frames, source.size, short_side=self.short_side)
        if needed > self._free_bytes:
            room = self.max_bytes - self.num_bytes
            # others write, too: count again after a part of the room
            self._free_bytes = max(room // 16, needed) if needed <= room else 0
        if needed <= self._free_bytes:
            self._free_bytes -= needed
            return True
        self._warn(
            FULL,
            "the clip cache %s is full: %.1f GB of at most %.1f GB; further videos are decoded "
            "each time they are read. Raise max_bytes or lower short_side",
            self.folder, self.num_bytes / 1e9, self.max_bytes / 1e9,
        )  # fmt: skip
        return False

    def _warn(self, kind: int, message: str, *values: object) -> None:
        if not self._warned[kind]:
            self._warned[kind] = True
            logger.warning(message, *values)

    def _write(self, source: FrameSource, file: Path) -> None:
        """Write the frames under another name, then rename: no reader sees half a file."""
        self.folder.mkdir(parents=True, exist_ok=True)
        handle, name = tempfile.mkstemp(dir=self.folder, suffix=".part")
        try:
            with os.fdopen(handle, "wb") as part:
                self._write_frames(source, part)
                np.save(part, source.times.astype("<f8"))
            os.replace(name, file)
        except BaseException:
            Path(name).unlink(missing_ok=True)
            raise

    def _write_frames(self, source: FrameSource, part: BinaryIO) -> None:
        """Write (n, h, w, 3) resized frames as NumPy would, holding one of them at a time."""
        size = cached_size(source.size, short_side=self.short_side)
        shape = (source.num_frames, *size, 3)
        header = {"descr": "|u1", "fortran_order": False, "shape": shape}
        np.lib.format.write_array_header_1_0(part, header)
        start, frame_bytes = part.tell(), size[0] * size[1] * 3
        for numbers, frames in source.stream(range(source.num_frames)):
            pixels = resize(frames, size).permute(0, 2, 3, 1).contiguous()  # (n, h, w, 3)
            for number, picture in zip(numbers, pixels, strict=True):
                part.seek(start + number * frame_bytes)
                part.write(picture.numpy().data)
        part.seek(start + source.num_frames * frame_bytes)


def cached_size(size: tuple[int, int], *, short_side: int | None) -> tuple[int, int]:
    """Return height and width of the cached frames of a video of this height and width."""
    scale = 1.0 if short_side is None else short_side / min(size)
    return max(1, round(size[0] * scale)), max(1, round(size[1] * scale))


def cached_bytes(num_frames: int, size: tuple[int, int], *, short_side: int | None) -> int:
    """Return what the frames of a video take in a cache, without the header of a few bytes."""
    height, width = cached_size(size, short_side=short_side)
    return num_frames * height * width * 3
