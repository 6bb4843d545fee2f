"""What a user may name as a video: a file, a folder, a pattern, an address, a camera, a sample."""

import glob
import re
import shutil
import sys
import tempfile
import urllib.error
import urllib.request
import weakref
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from urllib.parse import urlsplit

import av
import torch
from av.container import InputContainer

from tokenselect.data.frame_folder import list_pictures, walk_videos
from tokenselect.data.frame_source import FramesInMemory, FrameSource, VideoError
from tokenselect.data.synthetic import CLASS_NAMES, SyntheticActions
from tokenselect.data.video import open_video

NUM_SAMPLES = len(CLASS_NAMES)
FRAMES, SIDE, FPS = 16, 192, 8.0  # twice the side that the small model sees, for the eye


def open_sample(number: int) -> FramesInMemory:
    """Draw sample clip `number`, which no model was trained on."""
    if not 0 <= number < NUM_SAMPLES:
        raise ValueError(f"samples are numbered 0 to {NUM_SAMPLES - 1}, got {number}")
    clips = SyntheticActions(NUM_SAMPLES, frames=FRAMES, size=SIDE, split="test")
    return FramesInMemory(clips.video(number).contiguous(), fps=FPS, name=f"sample:{number}")


# By platform: what FFmpeg calls a camera, and the system that it belongs to.
CAMERAS = {"darwin": ("{}", "avfoundation"), "win32": ("video={}", "dshow")}


def camera_address(number: int) -> tuple[str, str]:
    """Give what FFmpeg calls a camera, and the system that it belongs to."""
    pattern, system = CAMERAS.get(sys.platform, ("/dev/video{}", "v4l2"))
    return pattern.format(number), system


def record_camera(number: int, seconds: float, *, tell: Callable[[str], object]) -> FramesInMemory:
    """Record a camera, 0 for the first, into memory; `tell` is told how far it is."""
    name = f"camera {number}"
    file, system = camera_address(number)
    try:
        with av.open(file, format=system) as container:
            return record_stream(container, seconds, name=name, tell=tell)
    except (av.error.FFmpegError, OSError) as error:
        raise VideoError(name, f"cannot be opened: {error.strerror or error} ({file})") from error


def record_stream(
    container: InputContainer, seconds: float, *, name: str, tell: Callable[[str], object]
) -> FramesInMemory:
    """Read frames until `seconds` have passed in the stream's own time."""
    pictures, times = [], []
    for frame in container.decode(video=0):
        pictures.append(torch.from_numpy(frame.to_ndarray(format="rgb24")).permute(2, 0, 1))
        times.append(float(frame.time or 0.0))
        passed = times[-1] - times[0]
        tell(f"recording {passed:.1f} of {seconds:g} s")
        if passed >= seconds:
            break
    if not pictures:
        raise VideoError(name, "gives no pictures")
    fps = (len(times) - 1) / (times[-1] - times[0]) if times[-1] > times[0] else 30.0
    return FramesInMemory(torch.stack(pictures), fps=fps, name=name)


MAX_BYTES = 2**31
PART = 2**18  # bytes read at once


def download_video(
    address: str, folder: Path, *, tell: Callable[[str], object], max_bytes: int = MAX_BYTES
) -> Path:
    """Fetch a video into a folder, under the name it has there; `tell` is told how far it is."""
    path = folder / (Path(urlsplit(address).path).name or "video")
    try:
        with urllib.request.urlopen(address, timeout=20) as answer, path.open("wb") as file:
            size = int(answer.headers.get("Content-Length") or 0)
            done = 0
            while part := answer.read(PART):
                done += len(part)
                if max(done, size) > max_bytes:
                    raise VideoError(address, f"is larger than {max_bytes / 2**20:.0f} MB")
                file.write(part)
                of = f" of {size / 2**20:.1f}" if size else ""
                tell(f"downloading {done / 2**20:.1f}{of} MB")
    except (OSError, ValueError) as error:
        shutil.rmtree(folder, ignore_errors=True)
        if isinstance(error, VideoError):
            raise
        is_answer = isinstance(error, urllib.error.HTTPError)  # it knows its number
        reason = error if is_answer else getattr(error, "reason", None) or error
        raise VideoError(address, f"cannot be downloaded: {reason}") from error
    return path


SAMPLE_NAME = re.compile(r"samples?(?::(\d+))?")
WHAT_A_VIDEO_IS = "a file, a folder, a pattern, an http address, a camera's number, or 'sample'"


@dataclass(frozen=True)
class FoundVideo:
    """A video that was named and can be opened."""

    name: str  # as shown
    open: Callable[[], FrameSource]  # opens it; raises `VideoError` if it cannot be read
    label: str | None = None  # what it shows, where that is known (samples)


def find_videos(
    words: Sequence[str], *, seconds: float = 4.0, tell: Callable[[str], object] = lambda _: None
) -> list[FoundVideo]:
    """Turn the words of a command line into videos, in order.

    Of a camera some seconds are recorded; `tell` is told how far recordings and downloads are.
    """
    if not words:
        raise ValueError(f"name a video: {WHAT_A_VIDEO_IS}")
    return [v for word in words for v in _find(word, seconds=seconds, tell=tell)]


def _find(word: str, *, seconds: float, tell: Callable[[str], object]) -> list[FoundVideo]:
    path = Path(word)
    if word.startswith(("http://", "https://")):
        return [FoundVideo(word, partial(_open_address, word, tell))]
    if path.is_dir() and not list_pictures(path):  # a folder of pictures is one video
        if not (names := walk_videos(path)):
            raise VideoError(path, "holds no videos")
        return [FoundVideo(name, partial(open_video, name)) for name in names]
    if path.exists():
        return [FoundVideo(word, partial(open_video, word))]
    if match := SAMPLE_NAME.fullmatch(word):
        if (number := int(match[1] or 0)) >= NUM_SAMPLES:
            raise ValueError(f"samples are numbered 0 to {NUM_SAMPLES - 1}, got {word!r}")
        numbers = range(NUM_SAMPLES) if word == "samples" else [number]
        return [FoundVideo(f"sample:{n}", partial(open_sample, n), CLASS_NAMES[n]) for n in numbers]
    if word.isdecimal():
        return [FoundVideo(f"camera {word}", partial(record_camera, int(word), seconds, tell=tell))]
    if glob.has_magic(word):
        found = sorted(glob.glob(word, recursive=True))
        if not found:
            raise FileNotFoundError(f"no file matches {word}")
        return [v for name in found for v in _find(name, seconds=seconds, tell=tell)]
    raise FileNotFoundError(f"{word} does not exist; a video is {WHAT_A_VIDEO_IS}")


def _open_address(address: str, tell: Callable[[str], object]) -> FrameSource:
    """Download to a file that lives as long as what reads it: large ones are opened again."""
    folder = tempfile.TemporaryDirectory(ignore_cleanup_errors=True)
    try:
        source = open_video(download_video(address, Path(folder.name), tell=tell))
    except BaseException:
        folder.cleanup()
        raise
    weakref.finalize(source, folder.cleanup)
    return source
