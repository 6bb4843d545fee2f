"""Run the parts asked for; keep what came out, and write `docs/reliability.md`.

    python -m benchmarks.faults --seed 0 --files 10000 --kills 50

A part's result goes to `benchmarks/results/faults_PART.json` after each of its pieces. The same
command at the same commit goes on where it was stopped; the page is written from all that is there.
"""

import argparse
import importlib
import json
import logging
import os
import platform
import shutil
import subprocess
import tempfile
import time
from collections import Counter
from collections.abc import Callable
from dataclasses import dataclass, field
from functools import partial
from itertools import islice
from pathlib import Path
from typing import Any

import torch

from benchmarks.faults.isolation import Case, Tally, run_isolated
from benchmarks.faults.kills import ENDS, end_command, make_commands
from benchmarks.faults.page import add_up, write_page
from benchmarks.faults.requests import request_cases
from benchmarks.faults.settings import checkpoint_cases, list_cases, plan_cases, recipe_cases
from benchmarks.faults.videos import Bench, describe_videos, video_cases
from tokenselect.cli.main import COMMANDS

WORDS = ["git", "-C", str(Path(__file__).parent), "rev-parse", "--short=12", "HEAD"]
COMMIT = subprocess.run(WORDS, capture_output=True, text=True, check=False).stdout.strip()
RESULTS = Path(__file__).parents[1] / "results"
PAGE = Path(__file__).parents[2] / "docs" / "reliability.md"
START = time.monotonic()
CHUNK = 250  # damaged videos on the disk at a time
TOGETHER = 200  # cases of one process
SHOWN = 50  # failures that a result lists, of each piece
ENDED = "each command ended at random moments, run again, and compared with an untouched run"
SETTINGS = "one value, tensor or stretch of text of each replaced by a hostile one, or lost"
REQUESTS = "methods, paths, headers, queries and bodies drawn at random; jobs with hostile values"
LAZY = ("torch._dynamo", "torch.export", "torch._inductor", "matplotlib.pyplot", "pyarrow.parquet")
EXTRAS = {"Ctrl+C": 10, "full disk": 10}  # one of so many for each kill
PARTS = {  # the numbers that decide what a part tries
    "kills": ("kills",),
    "requests": ("requests",),
    "settings": ("checkpoints", "recipes", "lists", "plans"),
    "videos": ("files",),
}


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
    parser.add_argument("--parts", nargs="*", default=list(PARTS), choices=PARTS)
    parser.add_argument(
        "--commands", nargs="*", help='such as train or "train, Ctrl+C"; the rest stays'
    )
    parser.add_argument(
        "--minutes", type=float, default=float("inf"), help="then stop; run it again to go on"
    )
    return parser.parse_args()


class OutOfTimeError(Exception):
    """The minutes asked for are over."""


@dataclass
class Part:
    """A part of the run, in pieces: those that were done before are not done again.

    Attributes:
        name: of `PARTS`.
        asked: the command line.
        result: what is kept in the part's file; its pieces by name.
    """

    name: str
    asked: argparse.Namespace
    result: dict[str, Any] = field(default_factory=dict)

    def __post_init__(self) -> None:
        sizes = {name: getattr(self.asked, name) for name in ("seed", *PARTS[self.name])}
        words = " ".join(f"--{name} {value}" for name, value in sizes.items())
        self.result = {
            "command": f"PYTHONPATH=src:. python -m benchmarks.faults {words} --parts {self.name}",
            "machine": f"{platform.machine()}, {os.cpu_count()} cores, one thread",
            "torch": torch.__version__,
            "tried": "",
            "pieces": {},
        }
        if self.file.exists():
            before = json.loads(self.file.read_text())
            if before["command"] == self.result["command"]:
                done = {n: one for n, one in before["pieces"].items() if self.is_done(n, one)}
                self.result["pieces"] = done

    def is_done(self, piece: str, found: dict[str, Any]) -> bool:
        """Tell whether a piece of an earlier run counts: made by this code, or not asked for."""
        return found["commit"] == COMMIT or not self.is_asked(piece)

    def is_asked(self, piece: str) -> bool:
        """Tell whether a piece is wanted: all are, or those of some commands, or named ones."""
        wanted = self.asked.commands
        return not wanted or piece in wanted or piece.partition(",")[0] in wanted

    @property
    def file(self) -> Path:
        """Where the result is kept."""
        return RESULTS / f"faults_{self.name}.json"

    def do(self, piece: str, work: Callable[[], Tally]) -> None:
        """Do a piece, unless it was done before, and keep what came out."""
        if piece in self.result["pieces"]:
            return
        start = time.monotonic()
        if start - START > 60 * self.asked.minutes:
            raise OutOfTimeError
        tally = work()
        counts: dict[str, Counter[str]] = {}
        for outcome in tally.outcomes:
            counts.setdefault(outcome.part, Counter())[outcome.kind] += 1
        self.result["pieces"][piece] = {
            "commit": COMMIT,
            "seconds": round(time.monotonic() - start, 1),
            "peak_mb": round(tally.peak_mb),
            "counts": {name: dict(found) for name, found in counts.items()},
            "failures": [vars(outcome) for outcome in tally.failures[:SHOWN]],
        }
        self.file.write_text(json.dumps(self.result, indent=1) + "\n")
        told = {name: dict(found) for name, found in counts.items()}
        print(f"{time.strftime('%H:%M:%S')} {self.name}, {piece}: {told}", flush=True)
        for outcome in tally.failures[:5]:
            print(f"  {outcome.case} | {outcome.kind} | {outcome.detail}", flush=True)

    def run(self) -> None:
        """Do all pieces."""
        with tempfile.TemporaryDirectory(prefix="faults-") as folder:
            bench = Bench(Path(folder))
            {"kills": run_kills, "videos": run_videos}.get(self.name, run_cases)(self, bench)
        self.file.write_text(json.dumps(self.result, indent=1) + "\n")


def run_videos(part: Part, bench: Bench) -> None:
    """Damage videos and give them to every path."""
    part.result["tried"] = describe_videos(bench)

    def damage(numbers: range) -> Tally:
        tally = run_isolated(list(video_cases(bench, numbers, seed=part.asked.seed)))
        shutil.rmtree(bench.folder / "damaged")
        return tally

    for first in range(0, part.asked.files, CHUNK):
        numbers = range(first, min(first + CHUNK, part.asked.files))
        part.do(f"{numbers.start} to {numbers.stop - 1}", partial(damage, numbers))


def run_cases(part: Part, bench: Bench) -> None:
    """Damage checkpoints, recipes, lists and plans; or send hostile requests."""
    makers: dict[str, Callable[..., Any]] = {
        "plans": lambda bench, numbers, seed: plan_cases(numbers, seed=seed),
        "lists": list_cases,
        "checkpoints": checkpoint_cases,
        "recipes": recipe_cases,
        "requests": request_cases,
    }
    part.result["tried"] = SETTINGS if part.name == "settings" else REQUESTS
    for name in PARTS[part.name]:
        count = getattr(part.asked, name)
        step = max(TOGETHER, -(-count // 10))
        for first in range(0, count, step):
            numbers = range(first, min(first + step, count))
            cases = makers[name](bench, numbers, seed=part.asked.seed)
            part.do(f"{name} {numbers.start} to {numbers.stop - 1}", partial(try_all, cases))


def try_all(cases: Any) -> Tally:
    """Try cases as they are made, some in each process."""
    tally = Tally([])
    made = iter(cases)
    while some := list[Case](islice(made, TOGETHER)):
        more = run_isolated(some)
        tally.outcomes += more.outcomes
        tally.peak_mb = max(tally.peak_mb, more.peak_mb)
    return tally


def run_kills(part: Part, bench: Bench) -> None:
    """End each long command at random moments."""
    part.result["tried"] = ENDED
    for command in make_commands(bench.folder / "commands", bench.checkpoint):
        for how in (*ENDS, "full disk") if command.writes else ENDS:
            if not part.is_asked(f"{command.name}, {how}"):
                continue
            times = max(1, part.asked.kills // EXTRAS.get(how, 1))
            folder = bench.folder / "ends"
            end = partial(end_command, command, folder, how=how, times=times, seed=part.asked.seed)
            part.do(f"{command.name}, {how}", end)


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
    parts = [Part(name, asked) for name in asked.parts]
    try:
        for part in parts:
            part.run()
    except OutOfTimeError:
        print("out of time: run the same command again to go on", flush=True)
        raise SystemExit(3) from None
    finally:
        write_page(RESULTS, PAGE)
    failed = sum(len(add_up(part.result)["failures"]) for part in parts)
    print(f"{failed} failures")
    raise SystemExit(1 if failed else 0)


if __name__ == "__main__":
    main()
