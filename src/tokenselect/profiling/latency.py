"""Latency of several things side by side, in turns, so that a noisy machine is fair to all."""

import statistics
import time
from collections.abc import Callable, Mapping


def measure_latency(
    tasks: Mapping[str, Callable[[], object]], *, repeats: int = 7, warmup: int = 1
) -> dict[str, float]:
    """Time each task in turns.

    Args:
        tasks: name to a function without arguments.
        repeats: rounds; each times every task once.
        warmup: rounds before that are not counted.

    Returns:
        Name to the median in seconds.
    """
    if repeats < 1:
        raise ValueError(f"repeats must be at least 1, got {repeats}")
    seconds: dict[str, list[float]] = {name: [] for name in tasks}
    for turn in range(warmup + repeats):
        for name, task in tasks.items():
            start = time.perf_counter()
            task()
            if turn >= warmup:
                seconds[name].append(time.perf_counter() - start)
    return {name: statistics.median(values) for name, values in seconds.items()}
