"""How a model wants its clips cut from a video: how many frames, how far apart, how large."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import torch
from torch import Tensor

from tokenselect.data import SegmentSampler, StrideSampler
from tokenselect.data.augmentation import IMAGENET_STATS, KINETICS_STATS
from tokenselect.data.transforms import normalize
from tokenselect.visualization.view import View, place_views

Stats = tuple[Sequence[float], Sequence[float]]
STATS: dict[str, Stats] = {"kinetics": KINETICS_STATS, "imagenet": IMAGENET_STATS}
STRIDES = {"mvit_b16": 4, "mvit_b16_32x3": 3, "mvit_mini": 4}  # of the others: 2


@dataclass(frozen=True)
class ClipRule:
    """The model's input.

    Attributes:
        frames: of a clip.
        size: height and width.
        stride: frames of the video from one frame of the clip to the next; None takes one frame of
            each of `frames` equal parts of the whole.
        short_side: of the picture before it is cropped; None for as small as covers `size`.
        stats: mean and deviation of the colours.
    """

    frames: int
    size: tuple[int, int]
    stride: int | None = 4
    short_side: int | None = None
    stats: Stats = KINETICS_STATS

    @property
    def shape(self) -> tuple[int, ...]:
        """Shape of a batch of one clip."""
        return (1, 3, self.frames, *self.size)

    def sample(self, start: int, stop: int, *, clips: int = 1) -> list[list[int]]:
        """Pick the frames of `clips` clips from frames start, …, stop − 1 of a video."""
        sampler: SegmentSampler | StrideSampler
        if self.stride is None:
            sampler = SegmentSampler(self.frames, num_clips=clips)
        else:
            sampler = StrideSampler(self.frames, self.stride, num_clips=clips)
        return [[start + number for number in clip] for clip in sampler(stop - start)]

    def views(self, source: tuple[int, int], *, crops: int = 1) -> list[View]:
        """Place the crops on a video of this height and width."""
        return place_views(source, self.size, short_side=self.short_side, crops=crops)

    def cut(self, frames: Tensor, views: Sequence[View]) -> Tensor:
        """Make (v, 3, t, h, w) model input of (t, 3, h, w) uint8 frames."""
        mean, std = self.stats
        return torch.stack([normalize(view.cut(frames), mean=mean, std=std) for view in views])


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
    )
