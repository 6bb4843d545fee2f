"""What a user may name as a video: a file, a folder, a pattern, an address, a camera, a sample."""

from __future__ import annotations

import glob
import re
import tempfile
import weakref
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from functools import partial
from pathlib import Path

from tokenselect.data import FrameSource, VideoError, open_video
from tokenselect.data.frame_folder import list_pictures
from tokenselect.data.video_files import list_videos
from tokenselect.prediction.camera import record_camera
from tokenselect.prediction.download import download
from tokenselect.prediction.samples import NUM_SAMPLES, open_sample, sample_label

SAMPLE = re.compile(r"samples?(?::(\d+))?")
KINDS = "a file, a folder, a pattern, an http address, a camera's number, or 'sample'"


@dataclass(frozen=True)
class Video:
    """A video that can be opened.

    Attributes:
        name: as shown.
        open: opens it; raises `VideoError` if it cannot be read.
        label: what it shows, where that is known (samples).
    """

    name: str
    open: Callable[[], FrameSource]
    label: str | None = None


def find_videos(
    words: Sequence[str],
    *,
    seconds: float = 4.0,
    tell: Callable[[str], object] | None = None,
) -> list[Video]:
    """Turn what was named into videos, in order.

    Args:
        words: as on the command line.
        seconds: to record of a camera.
        tell: told what takes time, recording and downloading.
    """
    if not words:
        raise ValueError(f"name a video: {KINDS}")
    return [v for word in words for v in _find(word, seconds=seconds, tell=tell or _tell_nobody)]


def _find(word: str, *, seconds: float, tell: Callable[[str], object]) -> list[Video]:
    path = Path(word)
    if word.startswith(("http://", "https://")):
        return [Video(word, partial(_open_address, word, tell))]
    if path.is_dir():
        return _in_folder(path)
    if path.exists():
        return [Video(word, partial(open_video, word))]
    if match := SAMPLE.fullmatch(word):
        return _samples(word, match[1])
    if word.isdigit():
        return [Video(f"camera {word}", partial(record_camera, int(word), seconds, tell=tell))]
    if glob.has_magic(word):
        found = sorted(glob.glob(word, recursive=True))
        if not found:
            raise FileNotFoundError(f"no file matches {word}")
        return [v for name in found for v in _find(name, seconds=seconds, tell=tell)]
    raise FileNotFoundError(f"{word} does not exist; a video is {KINDS}")


def _in_folder(path: Path) -> list[Video]:
    """List the videos below a folder; a folder of pictures is one video."""
    if list_pictures(path):
        return [Video(str(path), partial(open_video, path))]
    found = list_videos(path)
    if not found:
        raise VideoError(path, "holds no videos")
    return [Video(name, partial(open_video, name)) for name in found]


def _samples(word: str, number: str | None) -> list[Video]:
    if number is not None and int(number) >= NUM_SAMPLES:
        raise ValueError(f"samples are numbered 0 to {NUM_SAMPLES - 1}, got {word!r}")
    numbers = range(NUM_SAMPLES) if word == "samples" else [int(number or 0)]
    return [Video(f"sample:{n}", partial(open_sample, n), sample_label(n)) for n in numbers]


def _open_address(address: str, tell: Callable[[str], object]) -> FrameSource:
    """Download to a file that lives as long as what reads it: large ones are opened again."""
    folder = tempfile.TemporaryDirectory(ignore_cleanup_errors=True)
    try:
        source = open_video(download(address, Path(folder.name), tell=tell))
    except BaseException:
        folder.cleanup()
        raise
    weakref.finalize(source, folder.cleanup)
    return source


def _tell_nobody(_: str) -> None:
    pass
