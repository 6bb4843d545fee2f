"""Writing clips to video files, for tests and for pictures of what a model kept."""

from __future__ import annotations

import os
from collections.abc import Mapping, Sequence
from fractions import Fraction

import av
import torch.nn.functional as F
from av.video.stream import VideoStream
from torch import Tensor

CLOCK = 90_000  # ticks per second where times are given, as in broadcast streams


def write_video(
    path: str | os.PathLike[str],
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
    pictures = _pad_to_even(frames).permute(0, 2, 3, 1).contiguous().numpy()  # (t, h, w, 3)
    with av.open(os.fspath(path), "w") as container:
        stream = container.add_stream(codec, rate=rate, options=dict(options or {}))
        assert isinstance(stream, VideoStream), f"{codec} encodes no video"
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


def _pad_to_even(frames: Tensor) -> Tensor:
    height, width = frames.shape[-2:]
    if height % 2 == 0 and width % 2 == 0:
        return frames
    padded = F.pad(frames.float(), (0, width % 2, 0, height % 2), mode="replicate")
    return padded.to(frames.dtype)
