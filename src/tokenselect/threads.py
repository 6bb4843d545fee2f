"""How many threads torch takes, and what worker processes share.

Torch's default number of threads collapses where other programs hold the cores.
"""

import os
import time
from contextlib import suppress
from pathlib import Path

import torch

LOOK = 0.1  # seconds over which idle cores are counted


def set_threads(count: int | None = None) -> int:
    """Set torch's threads on the CPU, and give their number.

    None takes as many as there are idle cores, unless OMP_NUM_THREADS says how many.
    """
    if count is not None and count < 1:
        raise ValueError(f"threads must be at least 1, got {count}")
    if count is None and "OMP_NUM_THREADS" not in os.environ:
        count = max(1, min(torch.get_num_threads(), round(idle_cores() + 0.1), quota()))
    if count is not None:
        torch.set_num_threads(count)
    return torch.get_num_threads()


def idle_cores() -> float:
    """Count the cores that this process may use and others leave idle now."""
    if not Path("/proc/stat").exists():  # not Linux
        return os.cpu_count() or 1
    before, start = idle_seconds(), time.perf_counter()
    time.sleep(LOOK)
    return (idle_seconds() - before) / (time.perf_counter() - start)


def idle_seconds() -> float:
    """Sum how long the cores of this process have been idle since the start."""
    own = {f"cpu{number}" for number in os.sched_getaffinity(0)}
    lines = [line.split() for line in Path("/proc/stat").read_text().splitlines()]
    ticks = sum(int(line[4]) + int(line[5]) for line in lines if line[0] in own)
    return ticks / os.sysconf("SC_CLK_TCK")


def quota() -> int:
    """Give the whole cores that a container may use."""
    with suppress(OSError, ValueError):
        allowed, period = Path("/sys/fs/cgroup/cpu.max").read_text().split()
        return max(1, int(allowed) // int(period))
    return os.cpu_count() or 1


def shared_zeros(*shape: int, dtype: torch.dtype) -> torch.Tensor:
    """Give a tensor that worker processes share, also those that are started later."""
    try:
        return torch.zeros(shape, dtype=dtype).share_memory_()
    except RuntimeError as error:
        raise OSError(
            f"/dev/shm, which worker processes share, has no room: {str(error).splitlines()[0]}"
        ) from error
