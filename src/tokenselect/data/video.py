"""Frame-accurate decoding with PyAV: only the frames that are asked for become pixels.

PyAV does the decoding; which packets a frame needs is worked out here (`packets.py`), because no
library skips the frames in between and still gives the right ones of variable-rate files.
"""

import os
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from fractions import Fraction
from functools import cached_property
from itertools import chain, count
from pathlib import Path

import av
import numpy as np
import torch
from av.video.frame import VideoFrame
from av.video.reformatter import VideoReformatter
from av.video.stream import VideoStream
from torch import Tensor

from tokenselect.data.frame_folder import FrameFolder
from tokenselect.data.frame_source import FrameSource, PathOrStr, VideoError, check_frame_size
from tokenselect.data.packets import PacketTable, Run, open_stream

# Decoders that can leave out frames no other frame is predicted from, packet by packet.
SKIPPING_CODECS = {"h264", "hevc", "mpeg4"}
CLOCK = 90_000  # ticks per second of files written with times, as in broadcast streams


class VideoReader(FrameSource):
    """Frames of a video file by number, counted in the order they are shown.

    The decoder takes as many `threads` as torch has if none are given: one in a loader's worker.
    """

    def __init__(self, path: PathOrStr, *, threads: int | None = None):
        path = os.fspath(path)
        threads = torch.get_num_threads() if threads is None else threads
        _check_file(path)
        with _named_errors(path):
            self._container, self._stream = open_stream(path, threads=threads)
        try:
            # A stream may change its size or rotation; every frame is shown like the first.
            self._height, self._width = self._stream.height, self._stream.width
            self._quarter_turns: int | None = None
            with _named_errors(path):
                self._table = PacketTable(self._container, self._stream, path=path)
            check_frame_size(path, self._height, self._width)
        except VideoError:
            self.close()
            raise
        times = self._table.times
        rate = float(self._stream.average_rate or 1) if times[-1] <= 0 else None
        super().__init__(path, times=times, fps=rate)
        self._reformatter = VideoReformatter()

    @cached_property
    def size(self) -> tuple[int, int]:
        """Height and width of a frame as shown, that is after rotation."""
        height, width = self.read([0]).shape[-2:]
        return height, width

    @property
    def frame_pixels(self) -> int:
        """Pixels of one frame, as the header says."""
        return self._height * self._width

    def stream(self, numbers: Sequence[int]) -> Iterator[tuple[list[int], Tensor]]:
        """Decode rising frame numbers one by one."""
        with _named_errors(self.path):
            for run in self._table.runs(numbers):
                for stamp, frame in self._decode_run(run):
                    yield [self._number_of(stamp)], self._to_picture(frame)

    def verify(self) -> None:
        """Decode every frame and keep none; raise `VideoError` where something is damaged."""
        num_decoded = 0
        with _named_errors(self.path):
            for frame in self._frames(Run(0, self.num_frames - 1), only=None):
                self._check_whole(frame)
                num_decoded += 1
        if not num_decoded:
            raise VideoError(self.path, "is damaged: no frame can be decoded")

    def _decode_run(self, run: Run) -> Iterator[tuple[int, VideoFrame]]:
        """Give the wanted stamps of a run, each with its frame."""
        missing = set(run.wanted)
        skips = self._stream.codec.name in SKIPPING_CODECS and not self._table.is_counted
        for frame in self._frames(run, only=set(run.wanted) if skips else None):
            if frame.pts in missing:
                missing.remove(frame.pts)
                yield frame.pts, frame
        if missing:
            yield from self._fill(run, sorted(missing))

    def _fill(self, run: Run, missing: list[int]) -> Iterator[tuple[int, VideoFrame]]:
        """Give stamps whose packet makes no frame of its own the frame on screen at that time.

        Such are the hidden packets of VP8 and the placeholders of packed MPEG-4 streams.
        """
        on_screen: VideoFrame | None = None
        for frame in self._frames(run, only=None):
            if frame.pts is None:
                continue
            while missing and on_screen is not None and frame.pts > missing[0]:
                yield missing.pop(0), on_screen
            if not missing or frame.pts > missing[0]:
                break
            on_screen = frame
        if missing and on_screen is None:
            number = self._number_of(missing[0])
            raise VideoError(self.path, f"is damaged: frame {number} cannot be decoded")
        for stamp in missing:
            assert on_screen is not None
            yield stamp, on_screen

    def _frames(self, run: Run, *, only: set[int] | None) -> Iterator[VideoFrame]:
        """Decode a run; frames outside `only` that no other frame needs are left out."""
        context, numbers = self._stream.codec_context, count()
        context.flush_buffers()
        context.skip_frame = "DEFAULT"
        for packet in chain(self._table.packets(run), [None]):  # None: what waits for reordering
            if only is not None and packet is not None:
                context.skip_frame = "DEFAULT" if packet.pts in only else "NONREF"
            for frame in self._stream.decode(packet):
                if self._table.is_counted:
                    frame.pts = next(numbers)
                yield frame

    def _to_picture(self, frame: VideoFrame) -> Tensor:
        """Convert to (1, 3, h, w) RGB in the decoder's memory, the way a player shows it."""
        self._check_whole(frame)
        turned = self._reformatter.reformat(
            frame, width=self._width, height=self._height, format="rgb24", threads=1
        )
        if self._quarter_turns is None:
            self._quarter_turns = round(frame.rotation / 90) % 4
        rows = torch.frombuffer(turned.planes[0], dtype=torch.uint8).view(self._height, -1)
        picture = rows[:, : 3 * self._width].unflatten(1, (self._width, 3))  # (h, w, 3)
        if self._quarter_turns:
            picture = picture.rot90(self._quarter_turns)
        return picture.permute(2, 0, 1)[None]

    def _check_whole(self, frame: VideoFrame) -> None:
        if frame.is_corrupt:
            number = self._number_of(frame.pts or 0)
            raise VideoError(self.path, f"is damaged: frame {number} is incomplete")

    def _number_of(self, stamp: int) -> int:
        return int(np.searchsorted(self._table.shown, stamp))

    def close(self) -> None:
        """Close the file."""
        self._container.close()


def open_video(path: PathOrStr, *, threads: int | None = None) -> FrameSource:
    """Open a video file, or a folder of numbered pictures, which reads alike."""
    if Path(path).is_dir():
        return FrameFolder(path)
    return VideoReader(path, threads=threads)


def _check_file(path: str) -> None:
    try:
        is_empty = os.stat(path).st_size == 0
    except (OSError, ValueError) as error:
        if os.path.islink(path):
            raise VideoError(path, "is a broken link") from error
        raise VideoError(path, "does not exist") from error
    if is_empty:
        raise VideoError(path, "is empty (0 bytes)")


@contextmanager
def _named_errors(path: str) -> Iterator[None]:
    """Turn what the decoder raises into a `VideoError` that names the file."""
    try:
        yield
    except VideoError:
        raise
    except av.error.EOFError as error:
        raise VideoError(path, "has no frames: it ends after its header") from error
    except MemoryError as error:
        raise VideoError(path, "needs more memory than there is") from error
    except (av.error.FFmpegError, OSError, ValueError, ArithmeticError) as error:
        reason = getattr(error, "strerror", None) or str(error)
        raise VideoError(path, f"cannot be decoded: {reason}") from error


def write_video(
    path: PathOrStr,
    frames: Tensor,
    *,
    fps: float = 30,
    times: Sequence[float] | None = None,
    codec: str = "libx264",
    pixel_format: str = "yuv420p",
    options: Mapping[str, str] | None = None,
    rotation: int = 0,
) -> None:
    """Encode frames; the ending of `path` picks the container.

    Chroma is stored at half size, so an odd height or width gets its last row or column twice.

    Args:
        frames: (t, 3, h, w) uint8, RGB.
        times: seconds at which each frame is shown, for a variable rate; else every 1/fps.
        options: of the encoder, such as {"crf": "18", "g": "16"}.
        rotation: degrees counterclockwise by which a player shall turn the picture.
    """
    if frames.ndim != 4 or frames.shape[1] != 3 or frames.dtype.itemsize != 1:
        raise ValueError(f"frames must be (t, 3, h, w) uint8, got {tuple(frames.shape)}")
    if times is not None and len(times) != len(frames):
        raise ValueError(f"times must have one value per frame, got {len(times)} for {len(frames)}")
    rate = Fraction(fps).limit_denominator(1001)
    if rate <= 0:
        raise ValueError(f"fps must be at least 1/1001, got {fps}")
    stamps = [round(t * CLOCK) for t in times] if times is not None else range(len(frames))
    time_base = Fraction(1, CLOCK) if times is not None else 1 / rate
    rows, columns = (torch.arange(s + s % 2).clamp(max=s - 1) for s in frames.shape[2:])
    even = frames[:, :, rows][..., columns]
    pictures = even.permute(0, 2, 3, 1).contiguous().numpy()  # (t, h, w, 3)
    with av.open(os.fspath(path), "w") as container:
        stream = container.add_stream(codec, rate=rate, options=dict(options or {}))
        assert isinstance(stream, VideoStream), f"{codec} is not a video encoder"
        stream.height, stream.width = pictures.shape[1:3]
        stream.pix_fmt = pixel_format
        stream.codec_context.time_base = time_base
        if rotation:
            stream.set_display_rotation(rotation)
        for stamp, picture in zip(stamps, pictures, strict=True):
            frame = av.VideoFrame.from_ndarray(picture, format="rgb24")
            frame.pts, frame.time_base = stamp, time_base
            container.mux(stream.encode(frame))
        container.mux(stream.encode(None))
