"""Draws from a generator, and what every clip goes through: resizing, cropping, normalising.

Frames are (t, 3, h, w) uint8 until `normalize` makes them (3, t, h, w) float. Draws depend on
nothing but a generator, so that every sample can be made again.
"""

import hashlib
from collections.abc import Sequence

import torch
import torch.nn.functional as F
from torch import Generator, Tensor

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


def normalize(
    frames: Tensor, *, mean: Sequence[float], std: Sequence[float], center: str | None = None
) -> Tensor:
    """Map (t, 3, h, w) uint8 to (3, t, h, w) float, contiguous; mean and std are shares of 255.

    `center="clip"` subtracts the average frame, so that only what moves or changes is left.
    """
    if center not in (None, "clip"):
        raise ValueError(f"center must be 'clip' or None, got {center!r}")
    scale = 1 / (255 * torch.tensor(std))
    shift = torch.tensor(mean) / torch.tensor(std)
    video = torch.empty((3, len(frames), *frames.shape[-2:]))
    video.copy_(frames.transpose(0, 1))  # (3, t, h, w)
    video.mul_(scale[:, None, None, None]).sub_(shift[:, None, None, None])
    return video if center is None else video.sub_(video.mean(dim=1, keepdim=True))
