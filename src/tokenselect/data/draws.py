"""Random draws that depend on nothing but a generator, so that every sample can be made again."""

from __future__ import annotations

import hashlib

import numpy as np
import torch
from torch import Generator


def seeded_generator(*numbers: int) -> Generator:
    """Return a generator for a tuple such as (seed, epoch, index): other numbers, other draws."""
    digest = hashlib.blake2b(repr(numbers).encode(), digest_size=8).digest()
    return Generator().manual_seed(int.from_bytes(digest) >> 1)


def draw_uniform(low: float, high: float, *, generator: Generator) -> float:
    """Draw a number between `low` and `high`."""
    return low + (high - low) * torch.rand((), generator=generator, dtype=torch.float64).item()


def draw_shares(count: int, *, generator: Generator) -> list[float]:
    """Draw `count` numbers between 0 and 1."""
    return torch.rand(count, generator=generator, dtype=torch.float64).tolist()


def draw_integer(low: int, high: int, *, generator: Generator) -> int:
    """Draw one of low, …, high − 1."""
    return int(torch.randint(low, high, (), generator=generator))


def draw_normal(mean: float, deviation: float, *, generator: Generator) -> float:
    """Draw from a normal distribution."""
    return mean + deviation * torch.randn((), generator=generator, dtype=torch.float64).item()


def draw_beta(alpha: float, *, generator: Generator) -> float:
    """Draw from Beta(alpha, alpha)."""
    seed = draw_integer(0, 1 << 62, generator=generator)
    return float(np.random.default_rng(seed).beta(alpha, alpha))


def happens(probability: float, *, generator: Generator) -> bool:
    """Say yes with the given probability."""
    return draw_uniform(0, 1, generator=generator) < probability
