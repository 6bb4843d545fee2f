"""How long a command takes to start, beside torch alone.

Claim: `tokenselect predict sample` takes at most twice the time of `import torch`.

    PYTHONPATH=src:. python -m benchmarks.startup > benchmarks/results/startup.txt

Processor time of processes of their own, in turns, one thread: a busy machine does not blur it.
"""

import os
import resource
import statistics
import subprocess
import sys
from typing import Any

REPEATS = 5
COMMANDS = {
    "import torch": ["-c", "import torch"],
    "import of the command": ["-c", "import tokenselect.cli.predict"],
    "predict sample": ["-m", "tokenselect", "predict", "sample"],
}


def processor_time(words: list[str]) -> float:
    """Run python with some words; give user and system seconds."""
    before = resource.getrusage(resource.RUSAGE_CHILDREN)
    environment = {**os.environ, "OMP_NUM_THREADS": "1"}
    subprocess.run([sys.executable, *words], check=True, env=environment, stdout=subprocess.DEVNULL)
    after = resource.getrusage(resource.RUSAGE_CHILDREN)
    return after.ru_utime + after.ru_stime - before.ru_utime - before.ru_stime


def measure_startup(repeats: int, device: object = None) -> list[dict[str, Any]]:
    """Measure all in turns; the medians of seconds and of ratios to torch alone."""
    rounds = [
        {name: processor_time(words) for name, words in COMMANDS.items()} for _ in range(repeats)
    ]
    return [
        {
            "what": name,
            "CPU seconds": statistics.median(turn[name] for turn in rounds),
            "× import torch": statistics.median(
                turn[name] / turn["import torch"] for turn in rounds
            ),
        }
        for name in COMMANDS
    ]


def main() -> None:
    """Print a table."""
    print("PYTHONPATH=src:. python -m benchmarks.startup  (one thread, processor time)")
    for row in measure_startup(REPEATS):
        print(f"| {row['what']} | {row['CPU seconds']:.2f} s | {row['× import torch']:.2f} × |")


if __name__ == "__main__":
    main()
