"""Long commands ended at random moments, by a signal or a full disk, and run again.

What the last run leaves must equal, bit for bit, what a run leaves that nobody touched.
"""

import csv
import hashlib
import json
import random
import re
import resource
import shutil
import signal
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from functools import cache, partial
from pathlib import Path
from typing import Any

import pyarrow.parquet
import torch
import yaml

from benchmarks.faults.isolation import Ended, Outcome, Tally, run_forked
from benchmarks.faults.mutations import make_frames
from tokenselect.checkpoints import save_model
from tokenselect.data import write_video
from tokenselect.data.synthetic import CLASS_NAMES
from tokenselect.models import create_model
from tokenselect.training.recipe import recipe_from_dict

DATA = {"frames": 8, "size": 32, "train_clips": 6, "val_clips": 6, "test_clips": 4, "workers": 0}
SCHEDULE = {"epochs": 2, "warmup_epochs": 0.5, "batch_size": 3, "lr": 1e-3, "ema": 0.9}
RECIPE = {
    "name": "run",
    "data": DATA,
    "augmentation": {"mixup": 0, "cutmix": 0, "rand_augment_ops": 1, "repeats": 1},
    "schedule": SCHEDULE,
    "device": "cpu",
    "threads": 1,
    "checkpoint_steps": 1,
}
# of a run, not of its result
NO_RESULT = ("clips_per_second", "minutes", "command", "milliseconds", "seconds_per_video")
ENDS = {"killed": signal.SIGKILL, "Ctrl+C": signal.SIGINT}


@dataclass(frozen=True)
class Command:
    """A long command on a folder of its own.

    Attributes:
        name: of the command.
        words: gives its words for a folder; the same words go on with what is there.
        result: gives what the folder holds when it is done; None for what it prints.
        writes: it leaves files, and not only what it prints.
    """

    name: str
    words: Callable[[Path], Sequence[str]]
    result: Callable[[Path], object] | None
    writes: bool = True

    def result_of(self, place: Path, ended: Ended) -> object:
        """Give what a run has left in a folder, or printed."""
        return tell_figures(ended.told, place) if self.result is None else self.result(place)


def make_commands(folder: Path, checkpoint: Path) -> list[Command]:
    """Write what the commands need, and list them."""
    folder.mkdir(parents=True, exist_ok=True)
    videos, recipe, made = folder / "videos", folder / "train.yaml", folder / "compare.yaml"
    for number in range(6):
        path = videos / "train" / f"class{number % 3}" / f"{number}.mp4"
        path.parent.mkdir(parents=True, exist_ok=True)
        write_video(path, make_frames(9, 32, 40, seed=number), fps=10)
    shutil.copytree(videos / "train", videos / "val")
    (videos / "val" / "class0" / "0.mp4").write_bytes(b"no video")
    read = {**DATA, "source": "videos", "root": str(videos), "cache_short_side": 32}
    recipe.write_text(yaml.safe_dump({**RECIPE, "data": read, "model": {"plan": "T0_0.5-S4_0.5"}}))
    brief = {**SCHEDULE, "epochs": 1, "ema": None}
    untaught = {"scorer": "paper"}  # to teach a scorer is what `teach` is ended in
    made.write_text(yaml.safe_dump({**RECIPE, "schedule": brief, "model": untaught}))
    model = create_model("mvit_mini", num_classes=len(CLASS_NAMES), frames=8, size=32)
    about = {"recipe": recipe_from_dict(RECIPE).to_dict()}
    dense = save_model(model, folder / "dense", class_names=CLASS_NAMES, metadata=about)

    table = f"classify {videos} --checkpoint {checkpoint} --batch 2 --workers 0 --out"
    words = {
        "train": f"train {recipe} --runs {{0}} --data.cache {{0}}/cache --resume",
        "classify": f"{table} {{0}}/rows.csv",
        "classify-jsonl": f"{table} {{0}}/rows.jsonl",
        "classify-parquet": f"{table} {{0}}/rows.parquet",
        "compare": f"compare {made} --methods stts-exact --seeds 1 --out {{0}} --repeats 0 "
        "--workers 0",
        "teach": f"teach {dense} train --plan T0_0.5 --out {{0}}/taught --steps 3 --clips 6 "
        "--workers 0",
        "evaluate": f"evaluate {dense} synthetic --workers 0 --output {{0}}/figures.json "
        "--predictions {0}/answers.csv --confusion {0}/confusion.png",
        "visualize": f"visualize sample --checkpoint {dense} --repeats 0 --out {{0}}/report.html",
        "headroom": f"headroom {dense} synthetic --keep 2 --choices 4 --workers 0",
        "calibrate": f"calibrate --checkpoint {checkpoint} --target_gmacs 0.01 --repeats 0",
        "data-check": f"data check {videos} --workers 0",
        "export": f"export {checkpoint} --out {{0}}/model.pt2 --format torch --repeats 0",
    }
    results: dict[str, Callable[[Path], object]] = {
        "train": partial(files_below, skips=("cache", "events.out", "train.log")),
        "compare": read_comparison,
        "export": run_exported,
    }
    printing = ("headroom", "calibrate", "data-check")

    def give(name: str, place: Path) -> list[str]:
        return words[name].format(place).split()

    def result(name: str) -> Callable[[Path], object] | None:
        if name in printing:
            return None
        return read_table if name.startswith("classify") else results.get(name, files_below)

    return [
        Command(name, partial(give, name), result(name), name not in printing) for name in words
    ]


def tell_figures(told: str, place: Path) -> str:
    """Give what a command printed: without times, and without what shows how far it is."""
    plain = re.sub(r"\x1b\[[0-9;?]*[A-Za-z]|.*\r", "", told.replace(str(place), ""))
    lines = [line for line in plain.splitlines() if not re.search(r"\d (ms|s|min)\b", line)]
    return "\n".join(line.strip() for line in lines if line.strip())


def files_below(folder: Path, skips: Sequence[str] = ()) -> dict[str, str]:
    """Give a hash of every file, and where links lead; metrics without the times in them."""
    found = {}
    for path in sorted(folder.rglob("*")):
        name = str(path.relative_to(folder))
        if path.is_symlink():
            found[name] = str(path.readlink())
        elif path.is_file() and path.name[0] != "." and not any(skip in name for skip in skips):
            content = path.read_bytes()
            if path.suffix in (".json", ".jsonl"):
                lines = content.splitlines() if path.suffix == ".jsonl" else [content]
                content = repr([without_times(json.loads(line)) for line in lines]).encode()
            content = content.replace(str(folder).encode(), b"")
            found[name] = hashlib.sha256(content).hexdigest()[:16]
    return found


def without_times(value: Any) -> Any:
    """Leave out what differs between two equal runs."""
    if isinstance(value, dict):
        return {key: without_times(item) for key, item in value.items() if key not in NO_RESULT}
    return [without_times(item) for item in value] if isinstance(value, list) else value


def read_table(folder: Path) -> list[Any]:
    """Give the rows of a table; nothing but it and its settings may be left."""
    files = {path.suffix: path for path in folder.iterdir() if path.name[0] != "."}
    settings = files.pop(".json", None)
    (ending, path), *others = files.items()
    assert not others and (settings is None) == (ending == ".parquet"), sorted(folder.iterdir())
    if ending == ".parquet":
        return [list(row.values()) for row in pyarrow.parquet.read_table(path).to_pylist()]
    with path.open(encoding="utf-8", newline="") as file:
        if ending == ".jsonl":
            return [list(json.loads(line).values()) for line in file]
        return [[to_number(cell) for cell in row] for row in csv.reader(file)]


def run_exported(folder: Path) -> list[Any]:
    """Give the names of the files, and what the exported model answers."""
    (path,) = (path for path in folder.iterdir() if path.name[0] != ".")
    answer = torch.export.load(path).module()(torch.zeros(1, 3, 4, 32, 32))
    return [path.name, *answer.flatten().tolist()]


def to_number(text: str) -> Any:
    """Read a number or a list of numbers; another text stays."""
    try:
        return json.loads(text)
    except ValueError:
        return text


def is_same(found: Any, expected: Any) -> bool:
    """Tell whether values are equal; numbers of another batch may differ in the sixth digit."""
    if isinstance(found, float) and isinstance(expected, float):
        return abs(found - expected) < 1e-5
    if isinstance(found, list) and isinstance(expected, list):
        return len(found) == len(expected) and all(map(is_same, found, expected))
    return bool(found == expected)


def read_comparison(folder: Path) -> object:
    """Give the table of a comparison; whatever names its folder is left out."""
    rows = json.loads((folder / "comparison.json").read_text())["rows"]
    return json.dumps(without_times(rows)).replace(str(folder), "")


@dataclass(frozen=True)
class Untouched:
    """What a run leaves that nobody ends.

    Attributes:
        result: of the command.
        seconds: that it takes.
        largest: bytes of its largest file.
    """

    result: object
    seconds: float
    largest: int


@cache
def run_untouched(command: Command, folder: Path) -> Untouched:
    """Run a command to its end; a run before that fills the caches of the system."""
    results: list[object] = []
    for name in ("first", "whole"):
        place = folder / name
        place.mkdir(parents=True)
        ended = run_forked(command.words(place))
        if ended.code not in (0, 1):
            raise RuntimeError(f"{command.name} does not run at all: {ended.told}")
        results.append(command.result_of(place, ended))
    if not is_same(*results):
        raise RuntimeError(f"{command.name} gives another result each time: {results}")
    sizes = [path.stat().st_size for path in place.rglob("*") if path.is_file()]
    return Untouched(results[-1], ended.seconds, max(sizes, default=1))


@dataclass
class Ends:
    """A command that is ended again and again, and what an untouched run of it leaves.

    Attributes:
        command: what to end.
        folder: for all of it.
        how: one of `ENDS`, or "full disk".
        draw: of the moments.
        untouched: what must come out.
        tally: takes an outcome for each end.
    """

    command: Command
    folder: Path
    how: str
    draw: random.Random
    untouched: Untouched
    tally: Tally = field(default_factory=lambda: Tally([]))

    def end_once(self, place: Path) -> str | None:
        """Begin or continue the command and end it; return how, or None if it was done before."""
        if self.how == "full disk":
            room = int(self.untouched.largest ** self.draw.random())
            note = f"files of at most {room} bytes"
            ended = run_forked(self.command.words(place), prepare=partial(limit_files, room))
        else:
            after = self.draw.uniform(0, self.untouched.seconds)
            note = f"after {after:.3f} s"
            ended = run_forked(self.command.words(place), after=after, by=ENDS[self.how])
        self.tally.peak_mb = max(self.tally.peak_mb, ended.peak_mb)
        problem = find_problem(ended, self.how)
        if problem is not None:
            self.tally.outcomes.append(Outcome(self.title, note, *problem))
        return None if ended.code in (0, 1) else note

    def end_often(self, number: int, *, times: int) -> int:
        """End a fresh run up to so many times, let it finish, compare; return how often."""
        place = self.folder / f"{number:05d}"  # as long as "whole", for equal files
        place.mkdir()
        notes: list[str] = []
        while len(notes) < times and (note := self.end_once(place)) is not None:
            notes.append(note)
        last = run_forked(self.command.words(place))
        self.tally.peak_mb = max(self.tally.peak_mb, last.peak_mb)
        kind, detail = compare_results(self.command, place, self.untouched.result, last)
        for note in notes:
            case = f"round {number}, {note}"
            self.tally.outcomes.append(Outcome(self.title, case, kind, detail))
        shutil.rmtree(place)
        return len(notes)

    @property
    def title(self) -> str:
        """What is ended, and how."""
        return f"{self.command.name}, {self.how}"


def end_command(command: Command, folder: Path, *, how: str, times: int, seed: int) -> Tally:
    """End a command `times` times at random, go on each time, and compare what it leaves."""
    draw = random.Random(f"{seed} {command.name} {how}")
    folder = folder / command.name
    ends = Ends(command, folder, how, draw, run_untouched(command, folder))
    done = number = 0
    while done < times and number < 4 * times:
        done += ends.end_often(number, times=1 if how == "full disk" else times - done)
        number += 1
    return ends.tally


def limit_files(room: int) -> None:
    """Let no file grow above so many bytes, as a disk does that is full."""
    resource.setrlimit(resource.RLIMIT_FSIZE, (room, room))


def find_problem(ended: Ended, how: str) -> tuple[str, str] | None:
    """Say what is wrong with how a command ended, if anything."""
    told = ended.told[-600:]
    if "Traceback (most recent call last)" in ended.told:
        return "traceback", told
    expected = {"killed": (-signal.SIGKILL,), "Ctrl+C": (130,), "full disk": (2,)}[how]
    if how == "full disk" and ended.code == 2 and "/" not in ended.told:
        return "nameless error", told
    if ended.code not in (0, 1, *expected):
        return "crash", f"exit code {ended.code}: {told}"
    return None


def compare_results(
    command: Command, place: Path, expected: object, last: Ended
) -> tuple[str, str]:
    """Compare what a command that was ended and went on has left with what it must leave."""
    if "Traceback (most recent call last)" in last.told:
        return "traceback", last.told[-600:]
    if last.code not in (0, 1):
        return "lost work", f"exit code {last.code}: {last.told[-600:]}"
    found = command.result_of(place, last)
    if is_same(found, expected):
        return "answered", ""
    if isinstance(found, dict) and isinstance(expected, dict):
        names = sorted(n for n in {*found, *expected} if found.get(n) != expected.get(n))
        return "wrong figure", f"differs in {', '.join(names)[:500]}"
    return "wrong figure", f"{found} instead of {expected}"[:600]
