"""Which frames of a video make a clip (paper, section 4.1): pure functions of counts.

The paper's MViT sees 16 frames 4 apart, its Video Swin 32 frames 2 apart: a random stretch of a
long video in training, stretches spread over all of it in testing. Where the whole video is one
short action (Something-Something, sign language), one frame of each of t equal segments is taken
instead.

A sampler maps a number of frames to clips, each a list of `clip_frames` frame numbers. With a
generator it draws, without one it is fixed.
"""

from __future__ import annotations

from typing import Protocol

from torch import Generator

from tokenselect.data.draws import draw_integer, draw_shares


class Sampler(Protocol):
    """What a data set needs of a sampler."""

    def __call__(self, num_frames: int, *, generator: Generator | None = None) -> list[list[int]]:
        """Return clips: lists of frame numbers, all of one length."""


class StrideSampler:
    """Clips of frames `stride` apart: random in training, spread evenly in testing.

    A video shorter than a clip gives frames spread over all of it, some of them twice.

    Args:
        clip_frames: frames of a clip.
        stride: distance of neighbouring frames.
        num_clips: clips of a video; without a generator they start evenly from the first frame
            to the last possible start, a single one in the middle.
    """

    def __init__(self, clip_frames: int, stride: int, *, num_clips: int = 1):
        _check_positive(clip_frames=clip_frames, stride=stride, num_clips=num_clips)
        self.clip_frames, self.stride, self.num_clips = clip_frames, stride, num_clips

    def __call__(self, num_frames: int, *, generator: Generator | None = None) -> list[list[int]]:
        """Return `num_clips` clips of a video of `num_frames` frames."""
        _check_positive(num_frames=num_frames)
        room = num_frames - self.span
        if room < 0:
            return [spread_frames(num_frames, self.clip_frames)] * self.num_clips
        if generator is None:
            starts = spread_starts(room, self.num_clips)
        else:
            starts = [draw_integer(0, room + 1, generator=generator) for _ in range(self.num_clips)]
        return [list(range(start, start + self.span, self.stride)) for start in starts]

    @property
    def span(self) -> int:
        """Frames from the first of a clip to its last."""
        return (self.clip_frames - 1) * self.stride + 1

    def __repr__(self) -> str:
        return f"StrideSampler({self.clip_frames}×{self.stride}, num_clips={self.num_clips})"


class SegmentSampler:
    """Clips that cover the whole video: one frame of each of `clip_frames` equal segments.

    Args:
        clip_frames: segments, and frames of a clip.
        num_clips: clips of a video; without a generator clip j takes the frames at
            (j + 1/2) / num_clips of each segment.
    """

    def __init__(self, clip_frames: int, *, num_clips: int = 1):
        _check_positive(clip_frames=clip_frames, num_clips=num_clips)
        self.clip_frames, self.num_clips = clip_frames, num_clips

    def __call__(self, num_frames: int, *, generator: Generator | None = None) -> list[list[int]]:
        """Return `num_clips` clips of a video of `num_frames` frames."""
        _check_positive(num_frames=num_frames)
        return [self._clip(num_frames, number, generator) for number in range(self.num_clips)]

    def _clip(self, num_frames: int, number: int, generator: Generator | None) -> list[int]:
        length = num_frames / self.clip_frames
        if generator is None:
            shares = [(number + 0.5) / self.num_clips] * self.clip_frames
        else:
            shares = draw_shares(self.clip_frames, generator=generator)
        places = (segment + share for segment, share in enumerate(shares))
        return [min(int(place * length), num_frames - 1) for place in places]

    def __repr__(self) -> str:
        return f"SegmentSampler({self.clip_frames}, num_clips={self.num_clips})"


def spread_starts(room: int, num_clips: int) -> list[int]:
    """Spread starts evenly over 0, …, room; a single clip starts in the middle."""
    if num_clips == 1:
        return [room // 2]
    return [round(room * number / (num_clips - 1)) for number in range(num_clips)]


def spread_frames(num_frames: int, clip_frames: int) -> list[int]:
    """Spread `clip_frames` frame numbers evenly over a video, ends included."""
    if clip_frames == 1:
        return [num_frames // 2]
    return [round((num_frames - 1) * i / (clip_frames - 1)) for i in range(clip_frames)]


def parse_views(views: str) -> tuple[int, int]:
    """Read "5x1": five clips of a video, one crop of each."""
    parts = views.lower().replace("×", "x").split("x")
    if len(parts) != 2 or not all(part.strip().isdigit() and int(part) > 0 for part in parts):
        raise ValueError(f'views must be like "5x1" (clips x crops), got {views!r}')
    return int(parts[0]), int(parts[1])


def _check_positive(**counts: int) -> None:
    for name, count in counts.items():
        if count < 1:
            raise ValueError(f"{name} must be at least 1, got {count}")
