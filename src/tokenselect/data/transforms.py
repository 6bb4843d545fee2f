"""Geometry, colour and erasing on whole clips: one draw holds for all frames of a clip.

Frames are (t, 3, h, w) uint8 until `normalize` makes them (3, t, h, w) float. Draws depend on
nothing but a generator, so that every sample can be made again.
"""

import hashlib
import math
from collections.abc import Sequence

import torch
import torch.nn.functional as F
from torch import Generator, Tensor

LUMA = (0.299, 0.587, 0.114)  # how bright red, green and blue look
Box = tuple[int, int, int, int]  # top, left, height, width


def seeded_generator(*numbers: int) -> Generator:
    """Return a generator for a tuple such as (seed, epoch, index): other numbers, other draws."""
    digest = hashlib.blake2b(repr(numbers).encode(), digest_size=8).digest()
    return Generator().manual_seed(int.from_bytes(digest) >> 1)


def draw_uniform(low: float, high: float, *, generator: Generator) -> float:
    """Draw a number between `low` and `high`."""
    return low + (high - low) * torch.rand((), generator=generator, dtype=torch.float64).item()


def draw_integer(low: int, high: int, *, generator: Generator) -> int:
    """Draw one of low, …, high − 1."""
    return int(torch.randint(low, high, (), generator=generator))


def happens(probability: float, *, generator: Generator) -> bool:
    """Say yes with the given probability."""
    return draw_uniform(0, 1, generator=generator) < probability


def resize(frames: Tensor, size: tuple[int, int]) -> Tensor:
    """Resize (t, 3, h, w) uint8 frames to `size`, smoothing where they shrink."""
    if tuple(frames.shape[-2:]) == size:
        return frames
    frames = frames.contiguous(memory_format=torch.channels_last)  # the fast path
    return F.interpolate(frames, size=size, mode="bilinear", antialias=True, align_corners=False)


def crop(frames: Tensor, box: Box) -> Tensor:
    """Cut a box out of (..., h, w)."""
    top, left, height, width = box
    return frames[..., top : top + height, left : left + width]


def draw_resized_box(
    height: int,
    width: int,
    *,
    scale: tuple[float, float],
    ratio: tuple[float, float],
    generator: Generator,
) -> Box:
    """Draw a box of a share of the area and of an aspect; the largest that fits if ten miss."""
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


def normalize(
    frames: Tensor, *, mean: Sequence[float], std: Sequence[float], center: str | None = None
) -> Tensor:
    """Map (t, 3, h, w) uint8 to (3, t, h, w) float, contiguous.

    Args:
        mean: of red, green and blue, as shares of 255.
        std: likewise.
        center: "clip" subtracts the average frame, so that only what moves or changes is left.
    """
    if center not in (None, "clip"):
        raise ValueError(f"center must be 'clip' or None, got {center!r}")
    scale = 1 / (255 * torch.tensor(std))
    shift = torch.tensor(mean) / torch.tensor(std)
    video = torch.empty((3, len(frames), *frames.shape[-2:]))
    video.copy_(frames.transpose(0, 1))  # (3, t, h, w)
    video.mul_(scale[:, None, None, None]).sub_(shift[:, None, None, None])
    return video if center is None else video.sub_(video.mean(dim=1, keepdim=True))


def erase_cube(
    video: Tensor,
    *,
    probability: float,
    generator: Generator,
    area: tuple[float, float] = (0.02, 1 / 3),
    ratio: tuple[float, float] = (0.3, 1 / 0.3),
) -> Tensor:
    """Fill one box, the same in all frames, with noise, in place (random erasing).

    Args:
        video: (3, t, h, w) float, normalised.
        area: shares of the picture that a box may take.
    """
    if not happens(probability, generator=generator):
        return video
    height, width = video.shape[-2:]
    box = draw_resized_box(height, width, scale=area, ratio=ratio, generator=generator)
    region = crop(video, box)
    region.copy_(torch.randn(region.shape, generator=generator))
    return video
