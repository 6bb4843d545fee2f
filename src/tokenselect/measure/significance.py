"""Paired comparison of two methods on the same clips, in plain numpy.

Both methods answered the same clips with the same seeds. A clip is the unit: its difference is the
number of seeds with which the one was right minus that of the other. If the methods were alike, the
sign of each clip's difference would be a coin's toss; the share of tosses that give as large a sum
as the one that was seen is p. It is computed exactly, and with one seed it is McNemar's exact test.
"""

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

DRAWS = 10_000
SIGNIFICANT = 0.05


@dataclass(frozen=True)
class Paired:
    """How much better the one method is than the other."""

    difference: float  # of the mean top-1, as a share
    low: float  # of the 95 % interval, from resampled clips
    high: float  # of that interval
    p: float  # two-sided
    num_clips: int  # how many clips were compared
    num_seeds: int  # how many seeds

    @property
    def is_better(self) -> bool:
        """Tell whether the first method is better beyond chance."""
        return self.difference > 0 and self.p < SIGNIFICANT


def compare_answers(ours: Sequence[str], theirs: Sequence[str]) -> Paired:
    """Compare answers to the same clips: a text of 0 (wrong) and 1 a seed, a character a clip."""
    first, second = _counts(ours), _counts(theirs)
    if len(ours) != len(theirs) or first.shape != second.shape:
        raise ValueError(
            f"paired answers must be of the same seeds and clips, got {len(ours)} × {len(first)} "
            f"and {len(theirs)} × {len(second)}"
        )
    differences = first - second  # (clips,) in −seeds … seeds
    low, high = bootstrap_interval(differences / len(ours))
    return Paired(
        difference=float(differences.mean()) / len(ours),
        low=low,
        high=high,
        p=sign_flip_test(differences),
        num_clips=len(differences),
        num_seeds=len(ours),
    )


def sign_flip_test(differences: NDArray[np.int64]) -> float:
    """Give the chance of a sum at least as far from 0 if each (n,) sign were a coin's toss."""
    sizes = np.abs(differences)
    total = int(sizes.sum())
    chances = np.zeros(2 * total + 1)  # of the sums −total … total
    chances[total] = 1.0
    for size in sizes[sizes > 0].tolist():
        chances = 0.5 * (np.roll(chances, size) + np.roll(chances, -size))
    seen = abs(int(differences.sum()))
    sums = np.abs(np.arange(-total, total + 1))
    return min(1.0, float(chances[sums >= seen].sum()))


def bootstrap_interval(differences: NDArray[np.float64]) -> tuple[float, float]:
    """Give the 95 % interval of the mean over resampled clips; always the same draws."""
    rng = np.random.default_rng(0)
    values, counts = np.unique(differences, return_counts=True)
    drawn = rng.multinomial(len(differences), counts / counts.sum(), size=DRAWS)
    means = drawn @ values / len(differences)
    low, high = np.quantile(means, [0.025, 0.975])
    return float(low), float(high)


def _counts(answers: Sequence[str]) -> NDArray[np.int64]:
    """Count the seeds that were right about each clip."""
    rows = [[int(answer) for answer in text] for text in answers]
    if not rows or len({len(row) for row in rows}) != 1:
        raise ValueError(f"answers must be of equally many clips, got {[len(r) for r in rows]}")
    return np.array(rows, dtype=np.int64).sum(axis=0)
