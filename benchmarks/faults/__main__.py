"""Run the parts asked for; keep what came out, and write `docs/reliability.md`.

    python -m benchmarks.faults --seed 0 --files 10000 --kills 50

A part's result goes to `benchmarks/results/faults_PART.json`; parts may be run one by one, and the
page is written from all that are there.
"""

import argparse
import importlib
import json
import logging
import os
import platform
import shutil
import tempfile
import time
from collections import Counter
from collections.abc import Callable
from itertools import islice
from pathlib import Path

import torch

from benchmarks.faults.isolation import BAD, Tally, run_isolated
from benchmarks.faults.kills import ENDS, end_command, make_commands
from benchmarks.faults.page import write_page
from benchmarks.faults.requests import request_cases
from benchmarks.faults.settings import checkpoint_cases, list_cases, plan_cases, recipe_cases
from benchmarks.faults.videos import Bench, describe_videos, video_cases
from tokenselect.cli.main import COMMANDS

RESULTS = Path(__file__).parents[1] / "results"
PAGE = Path(__file__).parents[2] / "docs" / "reliability.md"
START = time.monotonic()
CHUNK = 250  # damaged videos on the disk at a time
SHOWN = 200  # failures that a result lists
ENDED = "each command ended at random moments, run again, and compared with an untouched run"
LAZY = ("torch._dynamo", "torch.export", "torch._inductor", "matplotlib.pyplot", "pyarrow.parquet")
EXTRAS = {"Ctrl+C": 5, "full disk": 5}  # one of so many for each kill


def parse() -> argparse.Namespace:
    """Read the command line."""
    parser = argparse.ArgumentParser(description="Damage files, kill commands, count what breaks.")
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument("--files", type=int, default=10_000, help="damaged videos")
    parser.add_argument("--kills", type=int, default=50, help="of each long command")
    parser.add_argument("--checkpoints", type=int, default=2_000)
    parser.add_argument("--recipes", type=int, default=400)
    parser.add_argument("--lists", type=int, default=20_000)
    parser.add_argument("--plans", type=int, default=50_000)
    parser.add_argument("--requests", type=int, default=2_000)
    parser.add_argument("--parts", nargs="*", default=["videos", "settings", "requests", "kills"])
    parser.add_argument(
        "--commands", nargs="*", help="to kill, beside what was killed before; all if not given"
    )
    return parser.parse_args()


def run_videos(bench: Bench, asked: argparse.Namespace, tally: Tally) -> str:
    """Damage videos and give them to every path."""
    for first in range(0, asked.files, CHUNK):
        numbers = range(first, min(first + CHUNK, asked.files))
        add(tally, run_isolated(list(video_cases(bench, numbers, seed=asked.seed))))
        shutil.rmtree(bench.folder / "damaged")
        say(f"{numbers.stop} of {asked.files} videos", tally)
        keep("videos", asked, tally, describe_videos(bench))
    return describe_videos(bench)


def run_settings(bench: Bench, asked: argparse.Namespace, tally: Tally) -> str:
    """Damage checkpoints, recipes, lists and plans."""
    seed = asked.seed
    for made in (
        plan_cases(range(asked.plans), seed=seed),
        list_cases(bench, range(asked.lists), seed=seed),
        checkpoint_cases(bench, range(asked.checkpoints), seed=seed),
        recipe_cases(bench, range(asked.recipes), seed=seed),
    ):
        while cases := list(islice(made, 200)):
            add(tally, run_isolated(cases))
        say("settings", tally)
    return "one value, tensor or stretch of text of each replaced by a hostile one, or lost"


def run_requests(bench: Bench, asked: argparse.Namespace, tally: Tally) -> str:
    """Send hostile requests."""
    add(tally, run_isolated(list(request_cases(bench, range(asked.requests), seed=asked.seed))))
    say("requests", tally)
    return "methods, paths, headers, queries and bodies drawn at random; jobs with hostile values"


def run_kills(bench: Bench, asked: argparse.Namespace, tally: Tally) -> str:
    """End each long command at random moments."""
    for command in make_commands(bench.folder / "commands", bench.checkpoint):
        if asked.commands and command.name not in asked.commands:
            continue
        for how in (*ENDS, "full disk") if command.writes else ENDS:
            times = max(1, asked.kills // EXTRAS.get(how, 1))
            folder = bench.folder / "ends"
            end_command(command, folder, how=how, times=times, seed=asked.seed, tally=tally)
            say(f"{command.name}, {how}", tally)
            keep("kills", asked, tally, ENDED)
    return ENDED


PARTS: dict[str, Callable[[Bench, argparse.Namespace, Tally], str]] = {
    "videos": run_videos,
    "settings": run_settings,
    "requests": run_requests,
    "kills": run_kills,
}


def add(tally: Tally, more: Tally) -> None:
    """Put the outcomes of more cases behind those of a tally."""
    tally.outcomes += more.outcomes
    tally.peak_mb = max(tally.peak_mb, more.peak_mb)


def say(text: str, tally: Tally) -> None:
    """Tell how far it is."""
    counts = Counter(outcome.kind for outcome in tally.outcomes)
    print(f"{time.strftime('%H:%M:%S')} {text}: {dict(counts)}", flush=True)


def keep(part: str, asked: argparse.Namespace, tally: Tally, tried: str) -> None:
    """Write what a part has found so far."""
    result, file = summarize(part, asked, tally, tried), RESULTS / f"faults_{part}.json"
    if part == "kills" and asked.commands and file.exists():  # others were ended before
        before = json.loads(file.read_text())
        result["counts"] = {**before["counts"], **result["counts"]}
        result["failures"] = [
            *(old for old in before["failures"] if old["part"] not in counted(tally)),
            *result["failures"],
        ]
        result["peak_mb"] = max(before["peak_mb"], result["peak_mb"])
    file.write_text(json.dumps(result, indent=1) + "\n")


def counted(tally: Tally) -> set[str]:
    """Name what a tally has cases of."""
    return {outcome.part for outcome in tally.outcomes}


def summarize(part: str, asked: argparse.Namespace, tally: Tally, tried: str) -> dict[str, object]:
    """Count the outcomes of a part."""
    counts: dict[str, Counter[str]] = {}
    for outcome in tally.outcomes:
        counts.setdefault(outcome.part, Counter())[outcome.kind] += 1
    own = {
        "videos": ("files",),
        "settings": ("checkpoints", "recipes", "lists", "plans"),
        "requests": ("requests",),
        "kills": ("kills",),
    }[part]
    words = " ".join(f"--{name} {getattr(asked, name)}" for name in ("seed", *own))
    return {
        "command": f"PYTHONPATH=src:. python -m benchmarks.faults {words} --parts {part}",
        "machine": f"{platform.machine()}, {os.cpu_count()} cores, one thread",
        "torch": torch.__version__,
        "seed": asked.seed,
        "tried": tried,
        "minutes": round((time.monotonic() - START) / 60, 1),
        "peak_mb": round(tally.peak_mb),
        "counts": {name: dict(found) for name, found in counts.items()},
        "failures": [vars(outcome) for outcome in tally.failures[:SHOWN]],
    }


def main() -> None:
    """Run the parts and write the page."""
    asked = parse()
    logging.disable(logging.WARNING)
    torch.set_num_threads(1)
    for command in COMMANDS.values():
        command.load()  # once, before all forks
    for module in LAZY:
        importlib.import_module(module)
    print(f"seed {asked.seed}", flush=True)
    failed = 0
    for part in asked.parts:
        tally = Tally([])
        with tempfile.TemporaryDirectory(prefix="faults-") as folder:
            tried = PARTS[part](Bench(Path(folder)), asked, tally)
        keep(part, asked, tally, tried)
        failed += sum(outcome.kind in BAD for outcome in tally.outcomes)
        for outcome in tally.failures[:20]:
            print(
                f"{outcome.part} | {outcome.case} | {outcome.kind} | {outcome.detail}", flush=True
            )
    write_page(RESULTS, PAGE)
    print(f"{failed} failures")
    raise SystemExit(1 if failed else 0)


if __name__ == "__main__":
    main()
