"""Decoded videos on disk: small uint8 frames, memory-mapped, so that an epoch reads and no more.

Decoding a clip costs more than training a tiny model on it. The first epoch writes every video,
resized, as one file of raw frames; later epochs map it and touch only the frames they need. A file
is keyed by the video's path, size and time of change and by the settings, written under another
name and renamed, so that any number of processes may share a folder, and may be deleted any time.
"""

from __future__ import annotations

import hashlib
import logging
import os
import tempfile
from collections.abc import Sequence
from pathlib import Path

import numpy as np
import torch
from torch import Tensor

from tokenselect.data.errors import VideoError
from tokenselect.data.transforms import resize_short_side
from tokenselect.data.video import FrameSource, open_video

logger = logging.getLogger(__name__)

LAYOUT = 1  # counts up when the content of a file changes its meaning
DECODED_AT_ONCE = 64  # frames, which bounds the memory for a long video


class CachedVideo:
    """Frames of one cached file, read like those of a video.

    Args:
        file: two arrays in NumPy's format: (n, h, w, 3) frames, (n,) times.
        path: the video they come from.
    """

    def __init__(self, file: Path, *, path: str):
        self.path, self._file = path, file
        self._frames = np.load(file, mmap_mode="r")  # (n, h, w, 3)
        self.num_frames = len(self._frames)

    @property
    def times(self) -> np.ndarray:
        """(n,) seconds at which the frames are shown."""
        with self._file.open("rb") as file:
            file.seek(self._frames.offset + self._frames.nbytes)
            return np.load(file)

    @property
    def fps(self) -> float:
        """Frames a second, the average if the rate varies."""
        last = float(self.times[-1])
        return (self.num_frames - 1) / last if last > 0 else 1.0

    @property
    def size(self) -> tuple[int, int]:
        """Height and width of a frame."""
        return self._frames.shape[1], self._frames.shape[2]

    def read(self, indices: Sequence[int]) -> Tensor:
        """Return (t, 3, h, w) uint8 frames in the order of `indices`."""
        numbers = np.asarray(indices)
        if numbers.min() < 0 or numbers.max() >= self.num_frames:
            raise IndexError(f"frames asked of {self.path}, which has {self.num_frames}")
        return torch.from_numpy(self._frames[numbers]).permute(0, 3, 1, 2)

    def verify(self) -> None:
        """Nothing can be damaged: the frames were decoded when they were written."""

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
        self,
        folder: str | os.PathLike[str],
        *,
        short_side: int | None = None,
        max_bytes: int = 20 << 30,
    ):
        self.folder, self.short_side, self.max_bytes = Path(folder), short_side, max_bytes
        self._has_warned = False
        self._free_bytes = 0  # that this object may write before it counts the folder again

    def open(self, path: str) -> FrameSource:
        """Open the cached frames of a video, making them first if need be."""
        file = self.file_of(path)
        if not file.exists():
            source = open_video(path)
            if not self._has_room_for(source):
                return source
            try:
                self._write(source, file)
            finally:
                source.close()
        return CachedVideo(file, path=path)

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
        if not self.folder.exists():
            return 0
        return sum(entry.stat().st_size for entry in os.scandir(self.folder) if entry.is_file())

    def _has_room_for(self, source: FrameSource) -> bool:
        height, width = self._cached_size(source)
        needed = source.num_frames * height * width * 3
        if needed > self._free_bytes:
            room = self.max_bytes - self.num_bytes
            # others write, too: count again after a part of the room
            self._free_bytes = max(room // 16, needed) if needed <= room else 0
        if needed <= self._free_bytes:
            self._free_bytes -= needed
            return True
        if not self._has_warned:
            self._has_warned = True
            logger.warning(
                "the clip cache %s is full: %.1f GB of at most %.1f GB; further videos are decoded "
                "each time they are read. Raise max_bytes or lower short_side",
                self.folder, self.num_bytes / 1e9, self.max_bytes / 1e9,
            )  # fmt: skip
        return False

    def _cached_size(self, source: FrameSource) -> tuple[int, int]:
        height, width = source.size
        scale = 1.0 if self.short_side is None else self.short_side / min(height, width)
        return round(height * scale), round(width * scale)

    def _write(self, source: FrameSource, file: Path) -> None:
        """Write the frames under another name, then rename: no reader sees half a file."""
        self.folder.mkdir(parents=True, exist_ok=True)
        handle, name = tempfile.mkstemp(dir=self.folder, suffix=".part")
        try:
            with os.fdopen(handle, "wb") as part:
                np.save(part, self._decode_all(source))
                np.save(part, source.times)
            os.replace(name, file)
        except BaseException:
            Path(name).unlink(missing_ok=True)
            raise

    def _decode_all(self, source: FrameSource) -> np.ndarray:
        """Return (n, h, w, 3) resized frames."""
        parts = []
        for start in range(0, source.num_frames, DECODED_AT_ONCE):
            stop = min(start + DECODED_AT_ONCE, source.num_frames)
            frames = source.read(range(start, stop))
            if self.short_side is not None:
                frames = resize_short_side(frames, self.short_side)
            parts.append(frames.permute(0, 2, 3, 1).contiguous().numpy())
        return np.concatenate(parts)
