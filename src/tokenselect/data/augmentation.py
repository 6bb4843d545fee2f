"""From frames to training input: crops, colours, RandAugment, erasing, mixing of clips.

RandAugment has the kinds, ranges and noise known as rand-m7-n4-mstd0.5-inc1, with which the paper's
backbones were trained: strengths grow with the magnitude (inc1), which is drawn around its mean
for each operation (mstd0.5), and each operation happens with probability one half. Pillow does the
operations; the draws are ours, because one draw must hold for all frames of a clip.
"""

import math
from abc import ABC, abstractmethod
from collections.abc import Callable, Sequence
from dataclasses import KW_ONLY, dataclass
from functools import partial

import numpy as np
import torch
import torch.nn.functional as F
from PIL import Image, ImageEnhance, ImageOps
from torch import Generator, Tensor

from tokenselect.data.transforms import crop, draw_integer, draw_uniform, happens, normalize, resize

KINETICS_STATS = ((0.45, 0.45, 0.45), (0.225, 0.225, 0.225))  # of the MViT models
IMAGENET_STATS = ((0.485, 0.456, 0.406), (0.229, 0.224, 0.225))  # of the Video Swin models
LUMA = (0.299, 0.587, 0.114)  # how bright red, green and blue look
# share of the picture, and aspect, of what random erasing fills
ERASED = {"scale": (0.02, 1 / 3), "ratio": (0.3, 1 / 0.3)}
Range = tuple[float, float]  # smallest and largest


class Transform(ABC):
    """Maps (t, 3, h, w) uint8 frames to (crops, 3, t, size, size) float views, in two steps.

    All that is random comes from the generator.
    """

    @abstractmethod
    def fit(self, height: int, width: int, *, generator: Generator) -> Callable[[Tensor], Tensor]:
        """Return the first step, which cuts frames of this size down, a few at a time."""

    @abstractmethod
    def finish(self, frames: Tensor, *, generator: Generator) -> Tensor:
        """Do the rest, on all the frames that the first step has cut down."""

    def __call__(self, frames: Tensor, *, generator: Generator | None = None) -> Tensor:
        """Transform one clip; a fixed transform needs no generator."""
        generator = generator or Generator()
        fit = self.fit(*frames.shape[-2:], generator=generator)
        return self.finish(fit(frames), generator=generator)


@dataclass(frozen=True)
class TrainTransform(Transform):
    """Random resized crop, flip, colours, RandAugment, normalisation, erasing, in this order."""

    size: int  # side of the square that the model sees
    _: KW_ONLY
    # smallest and largest share of the picture that a crop takes
    scale: Range = (0.08, 1.0)
    ratio: Range = (3 / 4, 4 / 3)  # narrowest and widest aspect of a crop
    flip: float = 0.5  # probability of mirroring; 0 where left and right matter to the label
    jitter: float = 0.0  # strength of the colour jitter; 0 for none
    rand_augment_ops: int = 0  # operations of RandAugment; 0 for none
    rand_augment_magnitude: float = 7.0  # their mean strength, of 10
    erasing: float = 0.0  # probability of erasing a box
    # mean and standard deviation of red, green and blue, as shares of 255
    stats: tuple[Sequence[float], Sequence[float]] = KINETICS_STATS
    center: str | None = None  # "clip" subtracts the clip's average frame

    def fit(self, height: int, width: int, *, generator: Generator) -> Callable[[Tensor], Tensor]:
        """Draw the crop, which can be cut out of frame after frame of a clip."""
        scale, ratio = self.scale, self.ratio
        box = draw_resized_box(height, width, scale=scale, ratio=ratio, generator=generator)
        return lambda frames: resize(crop(frames, box), (self.size, self.size))

    def finish(self, frames: Tensor, *, generator: Generator) -> Tensor:
        """Do the rest: map cropped (t, 3, size, size) uint8 to (1, 3, t, size, size) float."""
        frames = frames.contiguous()
        if happens(self.flip, generator=generator):
            frames = frames.flip(-1)
        if self.jitter > 0:
            frames = jitter_colors(frames, self.jitter, generator=generator)
        ops, magnitude = self.rand_augment_ops, self.rand_augment_magnitude
        frames = rand_augment(frames, num_ops=ops, magnitude=magnitude, generator=generator)
        mean, std = self.stats
        video = normalize(frames, mean=mean, std=std, center=self.center)
        return erase_cube(video, probability=self.erasing, generator=generator).unsqueeze(0)


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


def draw_resized_box(
    height: int, width: int, *, scale: Range, ratio: Range, generator: Generator
) -> tuple[int, int, int, int]:
    """Draw a box of a share of the area and of an aspect; the largest that fits if ten miss.

    It is (top, left, height, width).
    """
    for _ in range(10):
        area = height * width * draw_uniform(*scale, generator=generator)
        log_ratio = draw_uniform(math.log(ratio[0]), math.log(ratio[1]), generator=generator)
        box_w = round(math.sqrt(area * math.exp(log_ratio)))
        box_h = round(math.sqrt(area / math.exp(log_ratio)))
        if 0 < box_h <= height and 0 < box_w <= width:
            top = draw_integer(0, height - box_h + 1, generator=generator)
            left = draw_integer(0, width - box_w + 1, generator=generator)
            return top, left, box_h, box_w
    aspect = min(max(width / height, ratio[0]), ratio[1])
    box_h, box_w = min(height, round(width / aspect)), min(width, round(height * aspect))
    return (height - box_h) // 2, (width - box_w) // 2, box_h, box_w


def jitter_colors(frames: Tensor, strength: float, *, generator: Generator) -> Tensor:
    """Change brightness, contrast and saturation by factors around 1, in random order.

    The three make one linear map of the colours, so that pixels are touched once.
    """
    luma, start = torch.tensor(LUMA), frames.float()
    means = start.mean(dim=(2, 3))  # (t, 3)
    matrix, offset = torch.eye(3), torch.zeros_like(means)
    for number in torch.randperm(3, generator=generator).tolist():
        factor = draw_uniform(max(0.0, 1 - strength), 1 + strength, generator=generator)
        step, shift = factor * torch.eye(3), torch.zeros(1)
        if number == 1:  # contrast: towards the average brightness of each frame
            shift = (1 - factor) * ((means @ matrix.T + offset) @ luma)[:, None]
        elif number == 2:  # saturation: towards the brightness of each pixel
            step += (1 - factor) * luma
        matrix, offset = step @ matrix, offset @ step.T + shift
    mixed = matrix @ start.flatten(2)  # (t, 3, h·w)
    return mixed.add_(offset[..., None]).clamp_(0, 255).to(torch.uint8).view(frames.shape)


def erase_cube(video: Tensor, *, probability: float, generator: Generator) -> Tensor:
    """Fill one box of a (3, t, h, w) float video, the same in all frames, with noise, in place."""
    if not happens(probability, generator=generator):
        return video
    height, width = video.shape[-2:]
    box = draw_resized_box(height, width, **ERASED, generator=generator)
    region = crop(video, box)
    region.copy_(torch.randn(region.shape, generator=generator))
    return video


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
    alpha, seed = cutmix if uses_cutmix else mixup, draw_integer(0, 1 << 62, generator=generator)
    share = float(np.random.default_rng(seed).beta(alpha, alpha))
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


MAX_MAGNITUDE, MAGNITUDE_STD = 10.0, 0.5
FILL = (124, 124, 124)  # about the mean of natural pictures, for what a turn or a shift uncovers

Operation = Callable[[Image.Image, float, int], Image.Image]


def rand_augment(
    frames: Tensor, *, num_ops: int, magnitude: float = 7.0, generator: Generator
) -> Tensor:
    """Apply `num_ops` operations, drawn with replacement, to (t, 3, h, w) uint8 frames."""
    chosen: list[tuple[Operation, float, int]] = []
    for _ in range(num_ops):
        operation = OPERATIONS[draw_integer(0, len(OPERATIONS), generator=generator)]
        noise = torch.randn((), generator=generator, dtype=torch.float64).item()
        level = magnitude + MAGNITUDE_STD * noise
        sign = 1 if happens(0.5, generator=generator) else -1
        if happens(0.5, generator=generator):
            share = min(max(level, 0.0), MAX_MAGNITUDE) / MAX_MAGNITUDE
            chosen.append((operation, share, sign))
    return change_frames(frames, chosen) if chosen else frames


def change_frames(frames: Tensor, operations: list[tuple[Operation, float, int]]) -> Tensor:
    """Apply (operation, share, sign), one after another, to every frame."""
    changed = []
    for pixels in frames.permute(0, 2, 3, 1).contiguous().numpy():
        picture = Image.fromarray(pixels)
        for operation, share, sign in operations:
            picture = operation(picture, share, sign)
        changed.append(np.asarray(picture))
    return torch.from_numpy(np.stack(changed)).permute(0, 3, 1, 2).contiguous()


def solarize_add(picture: Image.Image, amount: int, threshold: int = 128) -> Image.Image:
    """Brighten the values below the threshold by at most 255 − threshold."""
    added = min(amount, 255 - threshold)
    levels = [level + added if level < threshold else level for level in range(256)]
    return picture.point(levels * 3)


def warp(picture: Image.Image, xx: float, xy: float, yx: float, yy: float) -> Image.Image:
    """Map places in the result, measured from the middle, to xx·x + xy·y and yx·x + yy·y."""
    x, y = picture.width / 2, picture.height / 2
    return affine(picture, (xx, xy, x - xx * x - xy * y, yx, yy, y - yx * x - yy * y))


def affine(picture: Image.Image, matrix: tuple[float, ...]) -> Image.Image:
    """Take each pixel from where the affine `matrix` maps it, `FILL` from outside."""
    return picture.transform(
        picture.size, Image.Transform.AFFINE, matrix, Image.Resampling.BILINEAR, fillcolor=FILL
    )


def enhance(kind: Callable[[Image.Image], ImageEnhance._Enhance]) -> Operation:
    """Make an operation of one of Pillow's enhancers: 1 changes nothing, from 0.1 to 1.9."""
    return lambda picture, share, sign: kind(picture).enhance(max(0.1, 1 + 0.9 * share * sign))


# Each takes a picture, the strength as a share of the strongest, and a sign.
OPERATIONS: list[Operation] = [
    lambda picture, share, sign: ImageOps.autocontrast(picture),
    lambda picture, share, sign: ImageOps.equalize(picture),
    lambda picture, share, sign: ImageOps.invert(picture),
    lambda picture, share, sign: ImageOps.posterize(picture, 4 - int(4 * share)),
    lambda picture, share, sign: ImageOps.solarize(picture, 256 - int(256 * share)),
    lambda picture, share, sign: solarize_add(picture, int(110 * share)),
    enhance(ImageEnhance.Color),
    enhance(ImageEnhance.Contrast),
    enhance(ImageEnhance.Brightness),
    enhance(ImageEnhance.Sharpness),
    lambda picture, share, sign: picture.rotate(
        30 * share * sign, Image.Resampling.BILINEAR, fillcolor=FILL
    ),
    lambda picture, share, sign: warp(picture, 1, 0.3 * share * sign, 0, 1),  # shear rows
    lambda picture, share, sign: warp(picture, 1, 0, 0.3 * share * sign, 1),  # shear columns
    lambda picture, share, sign: affine(
        picture, (1, 0, 0.45 * share * sign * picture.width, 0, 1, 0)
    ),
    lambda picture, share, sign: affine(
        picture, (1, 0, 0, 0, 1, 0.45 * share * sign * picture.height)
    ),
]
