"""What changes from step to step: the learning rate and the noise of the selection."""

import math
from dataclasses import dataclass


@dataclass(frozen=True, kw_only=True)
class SigmaSchedule:
    """Noise of the perturbed top-k: `start` at step 0, falling in a line to 0 at `total_steps`."""

    total_steps: int
    start: float = 0.1  # paper, section 4.1

    def at(self, step: int) -> float:
        """Give σ during step `step`, counted from 0."""
        return self.start * max(0.0, 1 - step / self.total_steps)


@dataclass(frozen=True, kw_only=True)
class RateSchedule:
    """Learning rate: a line from `warmup_start` to `peak`, then half a cosine down to `end`."""

    total_steps: int
    warmup_steps: int
    peak: float
    warmup_start: float = 0.0
    end: float = 0.0

    def __post_init__(self) -> None:
        if not 0 <= self.warmup_steps <= self.total_steps:
            raise ValueError(
                f"warmup_steps must be in [0, total_steps = {self.total_steps}], "
                f"got {self.warmup_steps}"
            )

    def at(self, step: int) -> float:
        """Give the rate of step `step`, counted from 0."""
        if step < self.warmup_steps:
            return self.warmup_start + (self.peak - self.warmup_start) * step / self.warmup_steps
        falling = max(self.total_steps - self.warmup_steps, 1)
        done = min((step - self.warmup_steps) / falling, 1.0)
        return self.end + (self.peak - self.end) * 0.5 * (1 + math.cos(math.pi * done))
