"""A few seconds of a camera."""

from __future__ import annotations

import sys
from collections.abc import Callable

import av
import torch

from tokenselect.data import VideoError
from tokenselect.prediction.samples import FramesInMemory


def camera_address(number: int) -> tuple[str, str]:
    """Give what FFmpeg calls a camera, and the system that it belongs to."""
    if sys.platform == "darwin":
        return str(number), "avfoundation"
    if sys.platform == "win32":
        return f"video={number}", "dshow"
    return f"/dev/video{number}", "v4l2"


def record_camera(number: int, seconds: float, *, tell: Callable[[str], object]) -> FramesInMemory:
    """Record a camera into memory.

    Args:
        number: 0 for the first.
        seconds: how long.
        tell: told how far it is.
    """
    name = f"camera {number}"
    file, system = camera_address(number)
    try:
        with av.open(file, format=system) as container:
            return record(container, seconds, name=name, tell=tell)
    except (av.error.FFmpegError, OSError) as error:
        raise VideoError(name, f"cannot be opened: {error.strerror or error} ({file})") from error


def record(
    container: av.container.InputContainer,
    seconds: float,
    *,
    name: str,
    tell: Callable[[str], object],
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
