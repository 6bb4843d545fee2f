"""Measure the parts asked for; save, print and plot them."""

import argparse
import io
import json
import os
import platform
import sys
import time
from pathlib import Path

import torch
from rich.console import Console
from rich.table import Table

from benchmarks import speed, topk
from benchmarks.speed.alternatives import measure_alternatives
from benchmarks.speed.dense import (
    measure_compiled,
    measure_dense,
    measure_memory,
    print_peak,
)
from benchmarks.speed.gains import measure_gains
from benchmarks.speed.growth import measure_growth, plot_growth
from benchmarks.speed.limit import measure_blocks, measure_limit
from benchmarks.speed.page import fill_page
from benchmarks.speed.runtimes import measure_runtimes
from benchmarks.speed.selected import (
    measure_batches,
    measure_optimized,
    measure_selected,
    measure_throughput,
    measure_training,
    measure_windows,
)
from benchmarks.speed.timing import CLOCK, Part, Row, use_processor_time
from benchmarks.startup import measure_startup

# What makes a machine with AVX-512 compute as one without it does, in torch and its libraries.
AVX2 = {
    "ATEN_CPU_CAPABILITY": "avx2",
    "ONEDNN_MAX_CPU_ISA": "AVX2",
    "MKL_ENABLE_INSTRUCTIONS": "AVX2",
}
ONE_THREAD, WITHOUT_AVX512 = "_one_thread", "_avx2"  # ends of the names of such tables
RESULTS = Path(__file__).parents[1] / "results"
PAGE = Path(__file__).parents[2] / "docs" / "performance.md"
PARTS: dict[str, Part] = {
    "limit": measure_limit,
    "runtimes": measure_runtimes,
    "dense": measure_dense,
    "selected": measure_selected,
    "batches": measure_batches,
    "blocks": measure_blocks,
    "windows": measure_windows,
    "training": measure_training,
    "topk": topk.measure_exact,
    "startup": measure_startup,
    "memory": measure_memory,
    "compiled": measure_compiled,
    "growth": measure_growth,
    "alternatives": measure_alternatives,
    "optimized": measure_optimized,  # the last ones: they change the process
    "throughput": measure_throughput,
    "gains": measure_gains,
}


def parse() -> argparse.Namespace:
    """Read the command line."""
    parser = argparse.ArgumentParser(description=(speed.__doc__ or "").splitlines()[0])
    parser.add_argument(
        "--parts", nargs="*", choices=PARTS, default=list(PARTS), help="none to write the page anew"
    )
    parser.add_argument("--repeats", type=int, default=7)
    parser.add_argument("--device", type=torch.device, default=torch.device("cpu"))
    parser.add_argument("--out", type=Path, default=RESULTS / "speed.json")
    parser.add_argument("--avx2", action="store_true", help="without AVX-512; tables of their own")
    parser.add_argument(
        "--processor-time", action="store_true", help="on one thread; if it is busy"
    )
    parser.add_argument("--peak-of", nargs=2, help=argparse.SUPPRESS)
    return parser.parse_args()


def main() -> None:
    """Measure part after part; each is saved when it is done."""
    settings = parse()
    if settings.peak_of:
        return print_peak(*settings.peak_of, settings.device)
    if settings.avx2 and not AVX2.items() <= os.environ.items():
        words = [sys.executable, "-m", "benchmarks.speed", *sys.argv[1:]]
        os.execve(sys.executable, words, {**os.environ, **AVX2})
    if settings.processor_time:
        use_processor_time()
    results = json.loads(settings.out.read_text()) if settings.out.exists() else {}
    for part in settings.parts:
        name = part + ONE_THREAD * settings.processor_time + WITHOUT_AVX512 * settings.avx2
        results[name] = {
            "command": f"python -m benchmarks.speed --parts {part} --repeats {settings.repeats}"
            + (" --processor-time" if settings.processor_time else "")
            + (" --avx2" if settings.avx2 else "")
            + ("" if settings.device.type == "cpu" else f" --device {settings.device.type}"),
            "machine": describe_machine(settings.device),
            "rows": PARTS[part](settings.repeats, settings.device),
        }
        settings.out.write_text(json.dumps(results, indent=1) + "\n")
        print(to_text(name, results[name]), flush=True)
    save_text(results, settings.out.with_suffix(".txt"))
    if settings.out.parent == RESULTS:
        fill_page(results, PAGE)
    if "growth" in results:
        plot_growth(results["growth"]["rows"], settings.out.with_name("speed_growth.png"))
    return None


def describe_machine(device: torch.device) -> str:
    """Say what the figures were measured on, and how busy it was."""
    if device.type == "cuda":
        return f"{torch.cuda.get_device_name(device)}, torch {torch.__version__}"
    threads = f"{torch.get_num_threads()} threads"
    if CLOCK[0] is time.process_time:
        threads = "1 thread, processor time"
    return (
        f"{platform.machine()}, {os.cpu_count()} cores, {threads}, "
        f"AVX-512 {'' if 'AVX512' in torch.backends.cpu.get_cpu_capability() else 'not '}used, "
        f"torch {torch.__version__}, load {os.getloadavg()[0]:.1f}"
    )


def to_text(part: str, result: Row) -> str:
    """Format one part as a table under its command."""
    rows = result["rows"]
    table = Table(*rows[0], title=part)
    for row in rows:
        table.add_row(*(f"{v:.3f}" if isinstance(v, float) else str(v) for v in row.values()))
    written = io.StringIO()
    Console(file=written, width=150).print(table)
    return f"{result['command']}\n{result['machine']}\n{written.getvalue()}"


def save_text(results: dict[str, Row], path: Path) -> None:
    """Write all parts that are known, in their order."""
    bare = {name: name.removesuffix(WITHOUT_AVX512).removesuffix(ONE_THREAD) for name in results}
    order = sorted(results, key=lambda name: list(PARTS).index(bare[name]))
    path.write_text("\n".join(to_text(part, results[part]) for part in order))


if __name__ == "__main__":
    main()
