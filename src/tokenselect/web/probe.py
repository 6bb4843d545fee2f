"""Opening a file that came from a client: only plain containers, within the limits."""

from __future__ import annotations

from pathlib import Path

import av

from tokenselect.data import FrameSource, VideoError, open_video
from tokenselect.web.limits import Limits

# Playlists and the like name other files and addresses; none of these does.
CONTAINERS = (
    "mov,mp4,m4a,3gp,3g2,mj2,matroska,webm,avi,mpegts,mpeg,mpegvideo,m4v,h264,hevc,av1,ivf,obu,"
    "asf,flv,ogg,gif,mxf,apng"
)
FORMATS = "it must be mp4, mov, mkv, webm, avi, mpeg, ts, wmv, flv, ogg or gif"
SAFE = {"format_whitelist": CONTAINERS, "protocol_whitelist": "file"}


def open_upload(path: Path, *, name: str, limits: Limits) -> FrameSource:
    """Open an uploaded video; what is wrong is said with the name that the user knows.

    Args:
        path: where it lies.
        name: that it had where it came from.
        limits: on length and frame size.
    """
    try:
        check_container(path, name=name, limits=limits)
        source = open_video(path)
    except VideoError as error:
        raise VideoError(name, error.reason) from error
    seconds = float(source.times[-1]) + 1 / source.fps
    try:
        check_seconds(seconds, name=name, limits=limits)
        source.read([0])  # a file whose pictures are damaged is refused here, not later
    except VideoError as error:
        source.close()
        raise VideoError(name, error.reason) from error
    return source


def check_container(path: Path, *, name: str, limits: Limits) -> None:
    """Look at the header alone, with every demuxer shut out that opens other files."""
    if path.stat().st_size == 0:
        raise VideoError(name, "is empty (0 bytes)")
    try:
        with av.open(str(path), options=SAFE, metadata_errors="ignore") as container:
            if not container.streams.video:
                raise VideoError(name, "has no video stream")
            for stream in container.streams.video:
                if (pixels := stream.width * stream.height) > limits.max_pixels:
                    raise VideoError(
                        name,
                        f"has frames of {stream.width} × {stream.height}: {pixels / 1e6:.0f} "
                        f"million pixels, the limit is {limits.max_pixels / 1e6:.0f}",
                    )
            if container.duration:
                check_seconds(container.duration / av.time_base, name=name, limits=limits)
    except (av.error.FFmpegError, OSError) as error:
        raise VideoError(name, f"cannot be read as a video: {reason_of(error)}") from error


def reason_of(error: Exception) -> str:
    """Say what FFmpeg's words mean to someone who dropped a file."""
    if isinstance(error, av.error.ArgumentError):
        return FORMATS
    if isinstance(error, av.error.InvalidDataError):
        return "it is damaged, or none"
    return str(getattr(error, "strerror", None) or error)


def check_seconds(seconds: float, *, name: str, limits: Limits) -> None:
    """Refuse a video that is too long."""
    if seconds > limits.max_seconds + 0.05:  # rounding of time stamps
        raise VideoError(
            name,
            f"is {seconds:.1f} seconds long, the limit of this server is {limits.max_seconds:g}",
        )
