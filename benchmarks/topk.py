"""Time and memory of the smoothed Top-K, forward and backward, against a plain one-hot operator.

Claims: the exact operator is no slower than 500 one-hot samples where it is used; the sampled one
is at least 3 times faster and 10 times smaller at (16, 196, 98), and runs in under 1 GB at
(2, 1568, 784), where the plain one cannot.

    PYTHONPATH=src python -m benchmarks.topk

Times are medians of processor time on one thread, the operators taking turns in one process.
Memory is the peak resident memory above that before the call, in a process of its own.
"""

import argparse
import json
import os
import platform
import resource
import statistics
import subprocess
import sys
import time
from collections.abc import Callable
from pathlib import Path

import torch
from torch import Tensor
from torch.nn.functional import one_hot

from tokenselect.ops import choose_method, perturbed_topk

RESULTS = Path(__file__).parent / "results"
SIGMA, NUM_SAMPLES = 0.1, 500
SIZES = [(16, 8, 5), (64, 16, 10), (128, 9, 1), (128, 81, 1), (16, 196, 98), (2, 1568, 784)]
SMALL = [(16, 8, 5), (16, 8, 3), (16, 16, 10), (64, 16, 10), (16, 32, 20)]
LIMIT = 4 << 30  # bytes that the plain operator may take before it counts as failed


class OneHotTopK(torch.autograd.Function):
    """The plain operator: a one-hot of every sample, the whole Jacobian from the same samples."""

    @staticmethod
    def forward(ctx, scores: Tensor, k: int) -> Tensor:
        """Average the one-hots of `NUM_SAMPLES` noisy choices: (b, l) to (b, k, l)."""
        num_rows, num_candidates = scores.shape
        noise = torch.randn(num_rows, NUM_SAMPLES, num_candidates)
        noisy = scores.unsqueeze(1) + SIGMA * noise
        indices = noisy.topk(k, sorted=False).indices.sort().values
        samples = one_hot(indices, num_candidates).to(scores.dtype)  # (b, s, k, l)
        ctx.save_for_backward(noise, samples)
        return samples.mean(dim=1)

    @staticmethod
    def backward(ctx, grad: Tensor) -> tuple[Tensor, None]:
        """Weigh every sample's noise by its worth."""
        noise, samples = ctx.saved_tensors
        worth = torch.einsum("bkl,bskl->bs", grad, samples)
        return torch.einsum("bs,bsl->bl", worth, noise) / (NUM_SAMPLES * SIGMA), None


def operator(name: str, k: int) -> Callable[[Tensor], Tensor]:
    """Find an operator by its name in the tables."""
    if name == "one-hot":
        return lambda scores: OneHotTopK.apply(scores, k)
    return lambda scores: perturbed_topk(scores, k, SIGMA, method=name, num_samples=NUM_SAMPLES)


def forward_and_backward(name: str, size: tuple[int, int, int]) -> Callable[[], None]:
    """Prepare one call: scores as after min-max rescaling, a random upstream gradient."""
    batch, num_candidates, k = size
    scores = torch.rand(batch, num_candidates, requires_grad=True)
    upstream = torch.randn(batch, k, num_candidates)
    apply = operator(name, k)

    def run() -> None:
        torch.autograd.grad(apply(scores), scores, upstream)

    return run


def measure_times(names: list[str], size: tuple[int, int, int], repeats: int) -> dict[str, float]:
    """Give the median milliseconds of each operator, all taking turns."""
    calls = {name: forward_and_backward(name, size) for name in names}
    clock = time.process_time if torch.get_num_threads() == 1 else time.perf_counter
    times: dict[str, list[float]] = {name: [] for name in names}
    for repeat in range(repeats + 1):
        for name, call in calls.items():
            start = clock()
            call()
            if repeat:  # the first turn warms up
                times[name].append(1e3 * (clock() - start))
    return {name: statistics.median(found) for name, found in times.items()}


def resident(field: str) -> int:
    """Read this process's VmRSS (now), VmHWM (peak) or VmSize from Linux, in bytes."""
    lines = Path("/proc/self/status").read_text().splitlines()
    return next(int(line.split()[1]) for line in lines if line.startswith(field)) << 10


def print_peak_memory(name: str, size: tuple[int, int, int]) -> None:
    """Print, from a process that does nothing else, the bytes that one call adds at its peak."""
    forward_and_backward(name, (1, 3, 2))()  # loads what any call loads
    call = forward_and_backward(name, size)
    resource.setrlimit(resource.RLIMIT_AS, (resident("VmSize") + LIMIT,) * 2)
    Path("/proc/self/clear_refs").write_text("5")  # the peak starts from here
    before = resident("VmRSS")
    try:
        call()
    except RuntimeError:
        print("null")
    else:
        print(max(0, resident("VmHWM") - before))


def measure_memory(name: str, size: tuple[int, int, int]) -> float | None:
    """Give the peak megabytes of one call; None when it does not fit into `LIMIT`."""
    command = [sys.executable, "-m", "benchmarks.topk", "--child", name, *map(str, size)]
    found = subprocess.run(command, check=True, capture_output=True, text=True).stdout
    number = json.loads(found.splitlines()[-1])
    return None if number is None else number / 1e6


def measure_size(size: tuple[int, int, int], repeats: int) -> dict[str, object]:
    """Measure every operator that is meant for this size, and the plain one where it fits."""
    memory = {name: measure_memory(name, size) for name in ("one-hot", "sampled")}
    names = [name for name in memory if memory[name] is not None]
    if choose_method(*size[1:]) == "exact":
        memory["exact"] = measure_memory("exact", size)
        names.append("exact")
    heavy = size[1] * size[2] > 10_000
    times = measure_times(names, size, 5 if heavy else repeats)
    return {"size": size, "milliseconds": times, "megabytes": memory}


def measure_crossover(repeats: int) -> list[dict[str, object]]:
    """Compare exact with sampled over numbers of candidates and kept; about 1024 scores a call."""
    rows = []
    for length in (8, 16, 32, 64, 196):
        for k in sorted(
            {1, length // 4, length // 2, length * 5 // 8, length * 7 // 8, length - 1}
        ):
            size = (max(1, 1024 // length), length, k)
            times = measure_times(["exact", "sampled"], size, repeats)
            ratio = times["exact"] / times["sampled"]
            rows.append({"size": size, "ratio": ratio, "rule": choose_method(length, k)})
    return rows


def measure_exact(repeats: int, device: torch.device) -> list[dict[str, object]]:
    """Compare the exact operator with 500 one-hot samples at small sizes, on one thread."""
    threads = torch.get_num_threads()
    torch.set_num_threads(1)
    rows = []
    for size in SMALL:
        times = measure_times(["one-hot", "sampled", "exact"], size, 8 * repeats)
        rows.append({"b × l × k": "×".join(map(str, size))})
        rows[-1] |= {f"{name} ms": value for name, value in times.items()}
        rows[-1]["exact / one-hot"] = times["exact"] / times["one-hot"]
    torch.set_num_threads(threads)
    return rows


def describe(report: dict) -> str:
    """Lay the report out as text."""
    lines = [report["command"], report["machine"], ""]
    lines.append(f"{'(b, l, k)':>16} {'operator':>10} {'ms':>10} {'vs one-hot':>10} {'MB':>10}")
    for row in report["sizes"]:
        times, memory = row["milliseconds"], row["megabytes"]
        for name, megabytes in memory.items():
            cells = [str(tuple(row["size"])), name, "", "", "does not fit in 4 GB"]
            if name in times:
                cells[2] = f"{times[name]:.2f}"
                cells[4] = f"{megabytes:.1f}"
            if name in times and "one-hot" in times:
                cells[3] = f"{times[name] / times['one-hot']:.2f}"
            lines.append(
                f"{cells[0]:>16} {cells[1]:>10} {cells[2]:>10} {cells[3]:>10} {cells[4]:>10}"
            )
    lines += ["", "time of exact / time of sampled, and what choose_method says"]
    for row in report["crossover"]:
        lines.append(f"{tuple(row['size'])!s:>16} {row['ratio']:>8.2f} {row['rule']:>10}")
    return "\n".join(lines) + "\n"


def main() -> None:
    """Measure everything, print it and save it under benchmarks/results/."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--repeats", type=int, default=30)
    parser.add_argument("--threads", type=int, default=1, help="above 1, times are wall-clock")
    parser.add_argument("--save", default="topk", help="name of the results; '' saves nothing")
    parser.add_argument("--child", nargs=4, metavar=("OPERATOR", "B", "L", "K"))
    arguments = parser.parse_args()
    torch.set_num_threads(arguments.threads)
    torch.manual_seed(0)
    if arguments.child:
        name, *size = arguments.child
        print_peak_memory(name, tuple(map(int, size)))
        return
    machine = f"{platform.machine()}, {os.cpu_count()} cores, {arguments.threads} thread(s)"
    report = {
        "command": "PYTHONPATH=src python -m benchmarks.topk " + " ".join(sys.argv[1:]),
        "machine": f"{machine}, torch {torch.__version__}, {NUM_SAMPLES} samples, float32",
        "sizes": [measure_size(size, arguments.repeats) for size in SIZES],
        "crossover": measure_crossover(max(3, arguments.repeats // 5)),
    }
    print(describe(report))
    if arguments.save:
        (RESULTS / f"{arguments.save}.json").write_text(json.dumps(report, indent=1) + "\n")
        (RESULTS / f"{arguments.save}.txt").write_text(describe(report))


if __name__ == "__main__":
    main()
