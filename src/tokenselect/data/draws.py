"""Random draws that depend on nothing but a generator, so that every sample can be made again."""

from __future__ import annotations

import numpy as np
import torch
from torch import Generator


def seeded_generator(*numbers: int) -> Generator:
    """Return a generator for a tuple such as (seed, epoch, index): other numbers, other draws."""
    # The length goes in because (1, 2) and (1, 2, 0) would be the same to numpy.
    state = np.random.SeedSequence([len(numbers), *(number % (1 << 64) for number in numbers)])
    return Generator().manual_seed(int(state.generate_state(1, np.uint64)[0] >> 1))


def draw_uniform(low: float, high: float, *, generator: Generator) -> float:
    """Draw a number between `low` and `high`."""
    return low + (high - low) * torch.rand((), generator=generator, dtype=torch.float64).item()


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
