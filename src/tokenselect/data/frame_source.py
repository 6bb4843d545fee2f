"""What files, folders of pictures, caches and memory have in common: numbered frames with times.

A source hands out one frame at a time, so that a caller who shrinks each one never holds a large
video. Sizes are checked before pixels are made: a file of a few kilobytes may claim gigabytes.
"""

import os
import unicodedata
from abc import abstractmethod
from collections.abc import Callable, Iterator, Sequence
from contextlib import AbstractContextManager

import numpy as np
import torch
from torch import Tensor

MAX_FRAME_PIXELS = 8192 * 4320  # an 8K picture, 106 MB as RGB
MAX_ASPECT = 32  # longer side to shorter side: resizing by the shorter one must not explode
MAX_CLIP_PIXELS = 2**28  # of the frames that one `read` returns, 805 MB as RGB
CHUNK_PIXELS = 2**24  # of frames that are handed out together, 50 MB as RGB

PathOrStr = str | os.PathLike[str]
Fit = Callable[[Tensor], Tensor]  # cuts (n, 3, h, w) frames down, each by itself


class VideoError(ValueError):
    """A video that cannot be read; a data set replaces it, a command prints it.

    `reason` says what is wrong with it, as the end of a sentence that starts with the path.
    """

    def __init__(self, path: PathOrStr, reason: str):
        super().__init__(os.fspath(path), reason)  # plain arguments, so that workers can pickle it
        self.path = os.fspath(path)
        self.reason = reason

    def __str__(self) -> str:
        return escape_unprintable(f"{self.path} {self.reason}")


def escape_unprintable(text: str) -> str:
    """Escape what breaks a line or a UTF-8 file: control characters, bytes that are not UTF-8."""
    return "".join(
        char.encode("unicode_escape").decode()
        if unicodedata.category(char) in ("Cc", "Cs", "Zl", "Zp")
        else char
        for char in text
    )


def check_frame_size(path: str, height: int, width: int) -> None:
    """Refuse a frame that is too large or too narrow to process in bounded memory."""
    if height < 1 or width < 1:
        raise VideoError(path, f"has frames without pixels ({width} × {height})")
    if height * width > MAX_FRAME_PIXELS:
        raise VideoError(
            path,
            f"has frames of {width} × {height} = {height * width:,} pixels; "
            f"the limit is {MAX_FRAME_PIXELS:,} (8K)",
        )
    if max(height, width) > MAX_ASPECT * min(height, width):
        raise VideoError(
            path,
            f"has frames of {width} × {height} pixels: one side may be at most {MAX_ASPECT} times "
            "the other",
        )


class FrameSource(AbstractContextManager["FrameSource"]):
    """Numbered frames with times.

    Attributes:
        times: (n,) seconds at which they are shown, the first at 0.
        fps: frames per second, the average if the rate varies.
    """

    def __init__(self, path: PathOrStr, *, times: np.ndarray, fps: float | None = None):
        self.path, self.times, self.num_frames = os.fspath(path), times, len(times)
        if fps is None:
            fps = (len(times) - 1) / times[-1] if times[-1] > 0 else 1.0
        self.fps = float(fps)

    @property
    @abstractmethod
    def size(self) -> tuple[int, int]:
        """Height and width of a frame as shown."""

    @property
    def frame_pixels(self) -> int:
        """Pixels of one frame, known without decoding any."""
        return self.size[0] * self.size[1]

    @abstractmethod
    def stream(self, numbers: Sequence[int]) -> Iterator[tuple[list[int], Tensor]]:
        """Give the frames of rising `numbers`, as (numbers, (n, 3, h, w) uint8), a few at a time.

        They may come in another order: a caller goes by the numbers.
        """

    def read(self, indices: Sequence[int]) -> Tensor:
        """Return (t, 3, h, w) uint8 frames in the order of `indices`, channels last in memory.

        Together they may have at most `MAX_CLIP_PIXELS`; `read_clips` cuts larger ones down.
        """
        if (pixels := len(indices) * self.frame_pixels) > MAX_CLIP_PIXELS:
            raise VideoError(
                self.path,
                f"needs {pixels:,} pixels for {len(indices)} frames; the limit is "
                f"{MAX_CLIP_PIXELS:,}",
            )
        return self.read_clips([indices], lambda height, width: [lambda frames: frames])[0]

    def read_clips(
        self, clips: Sequence[Sequence[int]], fit: Callable[[int, int], Sequence[Fit]]
    ) -> list[Tensor]:
        """Read the frames of clips, each decoded once and cut down before the next ones.

        Frames have numbers; one may come twice, in any order. Given height and width of a frame,
        `fit` makes what cuts the frames of each clip down, to the (t, ...) that are returned.
        """
        fits: Sequence[Fit] = ()
        read = [torch.empty(0)] * len(clips)
        for numbers, frames in self.stream(self.check_numbers([n for clip in clips for n in clip])):
            fits = fits or fit(frames.shape[2], frames.shape[3])
            for place, (clip, cut) in enumerate(zip(clips, fits, strict=True)):
                own = [number for number in numbers if number in clip]
                if not own:
                    continue
                is_all = len(own) == len(numbers)
                kept = cut(frames if is_all else frames[[numbers.index(n) for n in own]])
                if is_all and numbers == list(clip) and len(own) > 1:
                    read[place] = kept
                    continue
                if not len(read[place]):
                    channels_last = (len(clip), *kept.shape[2:], kept.shape[1])
                    read[place] = kept.new_empty(channels_last).permute(0, 3, 1, 2)
                for at, number in enumerate(clip):
                    if number in own:
                        read[place][at] = kept[own.index(number)]
        return read

    def check_numbers(self, numbers: Sequence[int]) -> list[int]:
        """Sort different frame numbers; raise `IndexError` where there is no such frame."""
        rising = sorted({int(number) for number in numbers})
        if not rising:
            raise ValueError("indices must name at least one frame")
        if rising[0] < 0 or rising[-1] >= self.num_frames:
            raise IndexError(
                f"frames {rising[0]} to {rising[-1]} requested from {self.path}, "
                f"which has {self.num_frames}"
            )
        return rising

    def verify(self) -> None:
        """Decode everything and keep nothing; raise `VideoError` where something is damaged."""
        for _ in self.stream(range(self.num_frames)):
            pass

    def close(self) -> None:
        """Let go of the file."""

    def __exit__(self, *_: object) -> None:
        self.close()

    def __repr__(self) -> str:
        return f"{type(self).__name__}({self.path!r}, {self.num_frames} frames at {self.fps:.4g}/s)"


class FramesInMemory(FrameSource):
    """(t, 3, h, w) uint8 frames that are there already; messages call them `name`."""

    def __init__(self, frames: Tensor, *, fps: float, name: str) -> None:
        super().__init__(name, times=np.arange(len(frames)) / fps, fps=fps)
        self.frames = frames
        check_frame_size(name, *self.size)

    @property
    def size(self) -> tuple[int, int]:
        """Height and width of a frame."""
        return self.frames.shape[2], self.frames.shape[3]

    def stream(self, numbers: Sequence[int]) -> Iterator[tuple[list[int], Tensor]]:
        """Give all at once."""
        yield list(numbers), self.frames[list(numbers)]
