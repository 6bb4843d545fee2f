"""Frame-accurate decoding with PyAV: only the frames that are asked for become pixels."""

from __future__ import annotations

import os
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from functools import cached_property
from pathlib import Path
from types import TracebackType
from typing import Protocol

import av
import numpy as np
import torch
from av.video.frame import VideoFrame
from av.video.reformatter import VideoReformatter
from torch import Tensor
from torch.utils.data import get_worker_info

from tokenselect.data.errors import VideoError
from tokenselect.data.frame_folder import FrameFolder
from tokenselect.data.packets import PacketTable, Run, open_stream

# Decoders that can leave out frames no other frame is predicted from, packet by packet.
SKIPPING_CODECS = {"h264", "hevc", "mpeg4"}


class FrameSource(Protocol):
    """What files and folders have in common: numbered frames with times."""

    num_frames: int

    @property
    def times(self) -> np.ndarray:
        """(n,) seconds at which the frames are shown."""

    @property
    def fps(self) -> float:
        """Frames a second."""

    @property
    def size(self) -> tuple[int, int]:
        """Height and width of a frame as shown."""

    def read(self, indices: Sequence[int]) -> Tensor:
        """Return (t, 3, h, w) uint8 frames in the order of `indices`."""

    def verify(self) -> None:
        """Decode everything and keep nothing; raise `VideoError` where something is damaged."""

    def close(self) -> None:
        """Let go of the file."""


class VideoReader:
    """Frames of a video file by number, counted in the order they are shown.

    Args:
        path: the file.
        threads: of the decoder; 0 lets it choose. None: one inside a worker of a data loader,
            where the processes already fill the machine, else the decoder's choice.

    Attributes:
        num_frames: how many frames are shown.
        times: (n,) seconds at which they are shown, the first at 0.
        fps: frames a second, the average if the rate varies.
    """

    def __init__(self, path: str | os.PathLike[str], *, threads: int | None = None):
        self.path = os.fspath(path)
        if threads is None:
            threads = 0 if get_worker_info() is None else 1
        _check_file(self.path)
        with _named_errors(self.path):
            self._container, self._stream = open_stream(self.path, threads=threads)
        try:
            with _named_errors(self.path):
                self._table = PacketTable(self._container, self._stream, path=self.path)
        except VideoError:
            self.close()
            raise
        self._reformatter = VideoReformatter()
        self.times = self._table.times
        self.num_frames = len(self.times)

    @property
    def fps(self) -> float:
        """Frames a second, the average if the rate varies."""
        if self.num_frames > 1 and self.times[-1] > 0:
            return float((self.num_frames - 1) / self.times[-1])
        return float(self._stream.average_rate or 1)

    @cached_property
    def size(self) -> tuple[int, int]:
        """Height and width of a frame as shown, that is after rotation."""
        height, width = self.read([0]).shape[-2:]
        return height, width

    def read(self, indices: Sequence[int]) -> Tensor:
        """Decode frames; the same index may come twice, in any order.

        Returns:
            (t, 3, h, w) uint8 in RGB, channels last in memory, which is what resizing likes.
        """
        numbers = sorted({int(index) for index in indices})
        if not numbers:
            raise ValueError("indices must name at least one frame")
        if numbers[0] < 0 or numbers[-1] >= self.num_frames:
            raise IndexError(
                f"frames {numbers[0]} to {numbers[-1]} asked of {self.path}, "
                f"which has {self.num_frames}"
            )
        with _named_errors(self.path):
            pictures = self._decode(numbers)
        place = {number: i for i, number in enumerate(numbers)}
        frames = torch.from_numpy(pictures).permute(0, 3, 1, 2)  # (t, 3, h, w)
        if len(numbers) == len(indices) and list(indices) == numbers:
            return frames
        return frames[[place[int(index)] for index in indices]]

    def verify(self) -> None:
        """Decode every frame and keep none; raise `VideoError` where something is damaged."""
        run = Run(0, self.num_frames - 1)
        num_decoded = 0
        with _named_errors(self.path):
            for frame in self._frames(run, only=None):
                self._check_whole(frame)
                num_decoded += 1
        if not num_decoded:
            raise VideoError(self.path, "is damaged: not one frame can be decoded")

    def _decode(self, numbers: list[int]) -> np.ndarray:
        """Return (t, h, w, 3) pixels of rising frame numbers."""
        pictures: dict[int, np.ndarray] = {}
        for run in self._table.runs(numbers):
            self._decode_run(run, pictures)
            missing = [stamp for stamp in run.wanted if stamp not in pictures]
            if missing:
                self._fill(run, missing, pictures)
        return np.stack([pictures[int(self._table.shown[number])] for number in numbers])

    def _decode_run(self, run: Run, pictures: dict[int, np.ndarray]) -> None:
        wanted = set(run.wanted)
        skips = self._stream.codec.name in SKIPPING_CODECS and not self._table.is_counted
        for frame in self._frames(run, only=wanted if skips else None):
            if frame.pts in wanted:
                pictures[frame.pts] = self._to_picture(frame)

    def _fill(self, run: Run, missing: list[int], pictures: dict[int, np.ndarray]) -> None:
        """Give stamps whose packet makes no frame of its own the frame on screen at that time.

        Such are the hidden packets of VP8 and the placeholders of packed MPEG-4 streams.
        """
        for frame in self._frames(run, only=None):
            for stamp in missing:
                if frame.pts is not None and frame.pts <= stamp:
                    pictures[stamp] = self._to_picture(frame)
        lost = [stamp for stamp in missing if stamp not in pictures]
        if lost:
            number = int(np.searchsorted(self._table.shown, lost[0]))
            raise VideoError(self.path, f"is damaged: frame {number} cannot be decoded")

    def _frames(self, run: Run, *, only: set[int] | None) -> Iterator[VideoFrame]:
        """Decode a run; frames outside `only` that no other frame needs are left out."""
        for number, frame in enumerate(self._decode_packets(run, only=only)):
            if self._table.is_counted:
                frame.pts = number
            yield frame

    def _decode_packets(self, run: Run, *, only: set[int] | None) -> Iterator[VideoFrame]:
        context = self._stream.codec_context
        context.flush_buffers()
        context.skip_frame = "DEFAULT"
        for packet in self._table.packets(run):
            if only is not None:
                context.skip_frame = "DEFAULT" if packet.pts in only else "NONREF"
            yield from self._stream.decode(packet)
        yield from self._stream.decode(None)  # what waits for reordering

    def _to_picture(self, frame: VideoFrame) -> np.ndarray:
        """Convert to (h, w, 3) RGB and turn it the way a player shows it."""
        self._check_whole(frame)
        # A stream may change its size; the frames of a clip may not.
        width, height = self._stream.width, self._stream.height
        turned = self._reformatter.reformat(
            frame, width=width, height=height, format="rgb24", threads=1
        )
        return np.rot90(turned.to_ndarray(), k=round(frame.rotation / 90) % 4)

    def _check_whole(self, frame: VideoFrame) -> None:
        if frame.is_corrupt:
            number = int(np.searchsorted(self._table.shown, frame.pts or 0))
            raise VideoError(self.path, f"is damaged: frame {number} is only partly there")

    def close(self) -> None:
        """Close the file."""
        self._container.close()

    def __enter__(self) -> VideoReader:
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        self.close()

    def __repr__(self) -> str:
        return f"VideoReader({self.path!r}, {self.num_frames} frames at {self.fps:.4g}/s)"


def open_video(path: str | os.PathLike[str], *, threads: int | None = None) -> FrameSource:
    """Open a video file, or a folder of numbered pictures, which reads alike."""
    if Path(path).is_dir():
        return FrameFolder(path)
    return VideoReader(path, threads=threads)


def _check_file(path: str) -> None:
    if not os.path.exists(path):
        raise VideoError(path, "does not exist")
    if os.path.getsize(path) == 0:
        raise VideoError(path, "is empty (0 bytes)")


@contextmanager
def _named_errors(path: str) -> Iterator[None]:
    """Turn what the decoder raises into a `VideoError` that names the file."""
    try:
        yield
    except av.error.EOFError as error:
        raise VideoError(path, "has no frames: it ends after its header") from error
    except (av.error.FFmpegError, OSError, UnicodeDecodeError) as error:
        reason = getattr(error, "strerror", None) or str(error)
        raise VideoError(path, f"cannot be decoded: {reason}") from error
