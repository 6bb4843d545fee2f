"""From a video to clips: which frames, which crops, and what a model wants (paper, section 4.1)."""

from collections.abc import Callable, Sequence
from dataclasses import KW_ONLY, asdict, dataclass
from functools import partial
from typing import Any, Protocol

import torch
from torch import Generator, Tensor

from tokenselect.data.augmentation import IMAGENET_STATS, KINETICS_STATS, Transform
from tokenselect.data.frame_source import Fit, FrameSource
from tokenselect.data.transforms import Box, crop, draw_integer, normalize, resize


class Sampler(Protocol):
    """What a data set needs of a sampler."""

    def __call__(self, num_frames: int, *, generator: Generator | None = None) -> list[list[int]]:
        """Return clips: lists of frame numbers, all of one length."""


@dataclass(frozen=True)
class StrideSampler:
    """Clips of frames `stride` apart: random in training, spread evenly in testing.

    A video shorter than a clip gives frames spread over all of it, some of them twice.
    """

    clip_frames: int  # frames of a clip
    stride: int  # distance of neighbouring frames
    _: KW_ONLY
    # clips of a video; without a generator they start evenly from the first frame to the last
    # possible start, a single one in the middle
    num_clips: int = 1

    def __post_init__(self) -> None:
        _check_positive(**asdict(self))

    def __call__(self, num_frames: int, *, generator: Generator | None = None) -> list[list[int]]:
        """Return `num_clips` clips of a video of `num_frames` frames."""
        _check_positive(num_frames=num_frames)
        room = num_frames - self.span
        if room < 0:
            return [spread_frames(num_frames, self.clip_frames)] * self.num_clips
        if generator is None and self.num_clips == 1:
            starts = [room // 2]
        elif generator is None:
            starts = spread_frames(room + 1, self.num_clips)
        else:
            starts = [draw_integer(0, room + 1, generator=generator) for _ in range(self.num_clips)]
        return [list(range(start, start + self.span, self.stride)) for start in starts]

    @property
    def span(self) -> int:
        """Frames from the first of a clip to its last."""
        return (self.clip_frames - 1) * self.stride + 1


@dataclass(frozen=True)
class SegmentSampler:
    """Clips that cover the whole video: one frame of each of `clip_frames` equal segments."""

    clip_frames: int  # segments, and frames of a clip
    _: KW_ONLY
    # clips of a video; without a generator clip j is at (j + 1/2) / num_clips of each segment
    num_clips: int = 1

    def __post_init__(self) -> None:
        _check_positive(**asdict(self))

    def __call__(self, num_frames: int, *, generator: Generator | None = None) -> list[list[int]]:
        """Return `num_clips` clips of a video of `num_frames` frames."""
        _check_positive(num_frames=num_frames)
        length, clips = num_frames / self.clip_frames, []
        for number in range(self.num_clips):
            share = torch.tensor((number + 0.5) / self.num_clips, dtype=torch.float64)
            shares = share.repeat(self.clip_frames)
            if generator is not None:
                shares.uniform_(generator=generator)
            places = (segment + share for segment, share in enumerate(shares.tolist()))
            clips.append([min(int(place * length), num_frames - 1) for place in places])
        return clips


@dataclass(frozen=True)
class SeenFrames:
    """Clips in which a seen frame stands for each that the model does not look at."""

    sampler: Sampler
    seen: tuple[int, ...]  # places of a clip, rising

    def __call__(self, num_frames: int, *, generator: Generator | None = None) -> list[list[int]]:
        """Return the sampler's clips; frames without a seen one near them are never named."""
        clips = self.sampler(num_frames, generator=generator)
        nearest = [min(self.seen, key=lambda s: abs(s - at)) for at in range(len(clips[0]))]
        return [[clip[place] for place in nearest] for clip in clips]


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


Size = tuple[int, int]  # height, width


@dataclass(frozen=True)
class View:
    """One crop of a resized video."""

    source: Size  # height and width of the video as it is shown
    resized: Size  # height and width before the crop
    box: Box  # top, left, height and width of the crop

    @property
    def size(self) -> Size:
        """Height and width of what the model sees."""
        return self.box[2:]

    def cut(self, frames: Tensor) -> Tensor:
        """Resize and crop (t, 3, h, w) uint8 frames of the video."""
        if tuple(frames.shape[-2:]) != self.source:
            raise ValueError(f"frames must be {self.source}, got {tuple(frames.shape[-2:])}")
        return crop(resize(frames, self.resized), self.box)

    def to_source(self, boxes: Tensor) -> Tensor:
        """Map (..., 4) boxes x0, y0, x1, y1 of the view to the video, as float pixels."""
        top, left, _, _ = self.box
        down, across = (self.source[i] / self.resized[i] for i in (0, 1))
        shift = torch.tensor([left, top, left, top], dtype=torch.float64)
        scale = torch.tensor([across, down, across, down], dtype=torch.float64)
        return (boxes.to(torch.float64) + shift) * scale


def place_views(
    source: Size, size: Size, *, short_side: int | None = None, crops: int = 1
) -> list[View]:
    """Place the views as in testing: resized to cover `size`, cut along the side with most room.

    The short side before cropping is `short_side` if that is larger than what covers `size`.
    """
    cover = max(size[0] / source[0], size[1] / source[1])
    scale = max(cover, (short_side or 0) / min(source))
    resized = max(size[0], round(source[0] * scale)), max(size[1], round(source[1] * scale))
    room = (resized[0] - size[0], resized[1] - size[1])
    middle = (room[0] // 2, room[1] // 2)
    if crops == 1:
        return [View(source, resized, (*middle, *size))]
    spread = spread_frames(max(room) + 1, crops)
    corners = [(middle[0], at) if room[1] >= room[0] else (at, middle[1]) for at in spread]
    return [View(source, resized, (*corner, *size)) for corner in corners]


Stats = tuple[Sequence[float], Sequence[float]]  # mean and deviation of the colours
STATS: dict[str, Stats] = {"kinetics": KINETICS_STATS, "imagenet": IMAGENET_STATS}
STRIDES = {"mvit_b16": 4, "mvit_b16_32x3": 3, "mvit_mini": 4}  # of the others: 2


@dataclass(frozen=True)
class ClipRule:
    """The model's input."""

    frames: int  # of a clip
    size: tuple[int, int]  # height and width
    # frames of the video from one frame of the clip to the next; None takes one frame of each of
    # `frames` equal parts of the whole
    stride: int | None = 4
    # of the picture before it is cropped; None for as small as covers `size`
    short_side: int | None = None
    stats: Stats = KINETICS_STATS  # mean and deviation of the colours
    center: str | None = None  # "clip" subtracts the clip's average frame
    seen: tuple[int, ...] | None = None  # places of a clip that the model looks at; None for all

    @property
    def shape(self) -> tuple[int, ...]:
        """Shape of a batch of one clip."""
        return (1, 3, self.frames, *self.size)

    def sample(self, start: int, stop: int, *, clips: int = 1) -> list[list[int]]:
        """Pick the frames of `clips` clips from frames start, …, stop − 1 of a video."""
        sampler: Sampler = SegmentSampler(self.frames, num_clips=clips)
        if self.stride is not None:
            sampler = StrideSampler(self.frames, self.stride, num_clips=clips)
        if self.seen is not None:
            sampler = SeenFrames(sampler, self.seen)
        return [[start + number for number in clip] for clip in sampler(stop - start)]

    def views(self, source: tuple[int, int], *, crops: int = 1) -> list[View]:
        """Place the crops on a video of this height and width."""
        return place_views(source, self.size, short_side=self.short_side, crops=crops)

    def read_crops(
        self,
        source: FrameSource,
        *,
        start: int = 0,
        stop: int | None = None,
        clips: int = 1,
        crops: int = 1,
    ) -> Tensor:
        """Read (clips · crops, t, 3, h, w) uint8 views of a video, or of its frames start to stop.

        Every frame is resized before the next one is decoded, however large the video.
        """
        chosen = self.sample(start, source.num_frames if stop is None else stop, clips=clips)
        views: list[View] = []

        def fit(height: int, width: int) -> list[Fit]:
            views.extend(self.views((height, width), crops=crops))
            return [partial(resize, size=views[0].resized)]

        (frames,) = source.read_clips([[number for clip in chosen for number in clip]], fit)
        parts = frames.split(self.frames)
        return torch.stack([crop(part, view.box) for part in parts for view in views])

    def normalize(self, crops: Tensor) -> Tensor:
        """Make (v, 3, t, h, w) model input of (v, t, 3, h, w) uint8 crops."""
        mean, std = self.stats
        return torch.stack([normalize(c, mean=mean, std=std, center=self.center) for c in crops])

    def cut(self, frames: Tensor, views: Sequence[View]) -> Tensor:
        """Make (v, 3, t, h, w) model input of (t, 3, h, w) uint8 frames."""
        return self.normalize(torch.stack([view.cut(frames) for view in views]))


@dataclass(frozen=True)
class EvalTransform(Transform):
    """The transform of testing: the short side resized, one crop in the middle or several."""

    size: int  # side of the square that the model sees
    _: KW_ONLY
    short_side: int | None = None  # of the picture before cropping; None: `size`
    crops: int = 1  # 1, or usually 3, spread along the longer side
    # mean and standard deviation of red, green and blue, as shares of 255
    stats: Stats = KINETICS_STATS
    center: str | None = None  # "clip" subtracts the clip's average frame

    def __post_init__(self) -> None:
        if self.short_side is not None and self.short_side < self.size:
            raise ValueError(f"short_side must be at least size {self.size}, got {self.short_side}")

    def _views(self, height: int, width: int) -> list[View]:
        size = (self.size, self.size)
        return place_views((height, width), size, short_side=self.short_side, crops=self.crops)

    def fit(self, height: int, width: int, *, generator: Generator) -> Callable[[Tensor], Tensor]:
        """Return the resizing; nothing is drawn."""
        return partial(resize, size=self._views(height, width)[0].resized)

    def finish(self, frames: Tensor, *, generator: Generator) -> Tensor:
        """Map resized (t, 3, h, w) uint8 to (crops, 3, t, size, size) float."""
        rule = ClipRule(len(frames), (self.size, self.size), stats=self.stats, center=self.center)
        return rule.cut(frames, self._views(*frames.shape[-2:]))


def rule_of_model(name: str, default_input: tuple[int, int, int]) -> ClipRule:
    """Give the published input of a model by name."""
    frames, height, width = default_input
    stats = KINETICS_STATS if name.startswith("mvit") else IMAGENET_STATS
    return ClipRule(frames, (height, width), stride=STRIDES.get(name, 2), stats=stats)


def rule_of_recipe(data: dict[str, Any]) -> ClipRule:
    """Give the input that a checkpoint was trained with, from the data part of its recipe."""
    size = data["size"]
    height, width = (size, size) if isinstance(size, int) else size
    is_synthetic = data.get("source") == "synthetic"  # the whole of such a clip is the action
    return ClipRule(
        data["frames"],
        (height, width),
        stride=None if is_synthetic else data.get("stride"),
        short_side=data.get("short_side"),
        stats=STATS[data.get("stats", "kinetics")],
        center=data.get("center"),
    )
