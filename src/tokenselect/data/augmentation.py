"""From frames to training input: crops, colours, RandAugment, erasing, mixing of clips.

The colour jitter is written by hand: as one linear map it touches each pixel once, not three times.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from functools import partial
from typing import Protocol

import torch.nn.functional as F
from torch import Generator, Tensor

from tokenselect.data.draws import draw_beta, draw_integer, happens
from tokenselect.data.randaugment import rand_augment
from tokenselect.data.transforms import (
    crop,
    draw_resized_box,
    erase_cube,
    jitter_colors,
    normalize,
    resize,
)

KINETICS_STATS = ((0.45, 0.45, 0.45), (0.225, 0.225, 0.225))  # of the MViT models
IMAGENET_STATS = ((0.485, 0.456, 0.406), (0.229, 0.224, 0.225))  # of the Video Swin models


class Transform(Protocol):
    """Maps (t, 3, h, w) uint8 frames to (crops, 3, t, size, size) float views."""

    def __call__(self, frames: Tensor, *, generator: Generator) -> Tensor:
        """Transform one clip; all that is random comes from the generator."""


class TrainTransform:
    """Random resized crop, flip, colours, RandAugment, normalisation, erasing, in this order.

    Args:
        size: side of the square that the model sees.
        scale: smallest and largest share of the picture that a crop takes.
        ratio: narrowest and widest aspect of a crop.
        flip: probability of mirroring; 0 where left and right matter to the label.
        jitter: strength of the colour jitter; 0 for none.
        rand_augment_ops: operations of RandAugment; 0 for none.
        rand_augment_magnitude: their mean strength, of 10.
        erasing: probability of erasing a box.
        stats: mean and standard deviation of red, green and blue, as shares of 255.
        center: "clip" subtracts the clip's average frame.
    """

    def __init__(
        self,
        size: int,
        *,
        scale: tuple[float, float] = (0.08, 1.0),
        ratio: tuple[float, float] = (3 / 4, 4 / 3),
        flip: float = 0.5,
        jitter: float = 0.0,
        rand_augment_ops: int = 0,
        rand_augment_magnitude: float = 7.0,
        erasing: float = 0.0,
        stats: tuple[Sequence[float], Sequence[float]] = KINETICS_STATS,
        center: str | None = None,
    ):
        self.size, self.scale, self.ratio, self.flip = size, scale, ratio, flip
        self.jitter, self.erasing, self.stats = jitter, erasing, stats
        self.center = center
        self.rand_augment_ops = rand_augment_ops
        self.rand_augment_magnitude = rand_augment_magnitude

    def fit(self, height: int, width: int, *, generator: Generator) -> Callable[[Tensor], Tensor]:
        """Draw the crop, which can be cut out of frame after frame of a clip."""
        box = draw_resized_box(
            height, width, scale=self.scale, ratio=self.ratio, generator=generator
        )
        return lambda frames: resize(crop(frames, box), (self.size, self.size))

    def finish(self, frames: Tensor, *, generator: Generator) -> Tensor:
        """Do the rest: map cropped (t, 3, size, size) uint8 to (1, 3, t, size, size) float."""
        frames = frames.contiguous()
        if happens(self.flip, generator=generator):
            frames = frames.flip(-1)
        if self.jitter > 0:
            frames = jitter_colors(frames, self.jitter, generator=generator)
        frames = rand_augment(
            frames,
            generator=generator,
            num_ops=self.rand_augment_ops,
            magnitude=self.rand_augment_magnitude,
        )
        mean, std = self.stats
        video = normalize(frames, mean=mean, std=std, center=self.center)
        return erase_cube(video, probability=self.erasing, generator=generator).unsqueeze(0)

    def __call__(self, frames: Tensor, *, generator: Generator) -> Tensor:
        """Map (t, 3, h, w) uint8 to (1, 3, t, size, size) float."""
        fit = self.fit(*frames.shape[-2:], generator=generator)
        return self.finish(fit(frames), generator=generator)


# By name: the released MViT configurations on Kinetics-400, Video Swin on Kinetics-400 and on
# Something-Something V2 (where left is not right), and a mild one for small sets from scratch.
AUGMENTATIONS: dict[str, Callable[..., TrainTransform]] = {
    "mvit_kinetics": partial(
        TrainTransform, size=224, jitter=0.4, rand_augment_ops=4, erasing=0.25
    ),
    "swin_kinetics": partial(TrainTransform, size=224, stats=IMAGENET_STATS),
    "swin_ssv2": partial(
        TrainTransform, size=224, flip=0.0, rand_augment_ops=4, erasing=0.25, stats=IMAGENET_STATS
    ),
    "small": partial(
        TrainTransform, size=64, scale=(0.5, 1.0), ratio=(0.8, 1.25), flip=0.0, jitter=0.3
    ),
}


def smooth_targets(labels: Tensor, *, num_classes: int, smoothing: float = 0.1) -> Tensor:
    """Return (b, num_classes) targets: 1 − smoothing on the label, the rest spread over all."""
    if not 0 <= smoothing < 1:
        raise ValueError(f"smoothing must be in [0, 1), got {smoothing}")
    return F.one_hot(labels, num_classes).float() * (1 - smoothing) + smoothing / num_classes


def mix_clips(
    video: Tensor,
    labels: Tensor,
    *,
    num_classes: int,
    generator: Generator,
    mixup: float = 0.8,
    cutmix: float = 1.0,
    smoothing: float = 0.1,
) -> tuple[Tensor, Tensor]:
    """Mix each clip with that of the other end of the batch, by mixup or by cutmix.

    Both happen equally often where both are asked for. One share and one box hold for a batch,
    and a box is cut from all frames.

    Args:
        video: (b, 3, t, h, w) float.
        labels: (b,) class numbers.
        mixup: alpha of Beta(alpha, alpha), from which the share is drawn; 0 turns it off.
        cutmix: likewise.

    Returns:
        (b, 3, t, h, w) clips and (b, num_classes) targets that sum to 1.
    """
    targets = smooth_targets(labels, num_classes=num_classes, smoothing=smoothing)
    if mixup <= 0 and cutmix <= 0:
        return video, targets
    uses_cutmix = mixup <= 0 or (cutmix > 0 and happens(0.5, generator=generator))
    share = draw_beta(cutmix if uses_cutmix else mixup, generator=generator)
    if uses_cutmix:
        video, share = paste_box(video, share, generator=generator)
    else:
        video = share * video + (1 - share) * video.flip(0)
    return video, share * targets + (1 - share) * targets.flip(0)


def paste_box(video: Tensor, share: float, *, generator: Generator) -> tuple[Tensor, float]:
    """Paste a box of the other clip; return the clips and the share that stays truly theirs."""
    height, width = video.shape[-2:]
    side = math.sqrt(1 - share)
    half_h, half_w = int(height * side) // 2, int(width * side) // 2
    row = draw_integer(0, height, generator=generator)
    column = draw_integer(0, width, generator=generator)
    rows = slice(max(0, row - half_h), min(height, row + half_h))
    columns = slice(max(0, column - half_w), min(width, column + half_w))
    mixed = video.clone()
    mixed[..., rows, columns] = video.flip(0)[..., rows, columns]
    area = (rows.stop - rows.start) * (columns.stop - columns.start)
    return mixed, 1 - area / (height * width)
