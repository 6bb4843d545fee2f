"""What pretraining on generated video gives over a start from scratch.

    python -m benchmarks.pretrained_start mvit_mini --data lsa20 --root ROOT --clips 200

`benchmarks.pretrain` made the weights that are in the package. Both starts are trained by the same
recipe for as many epochs, with every seed, and their last weights answer the same test clips; p is
that of the paired test. With `--clips` they learn from a few of the training clips, as many of each
class. A run is kept in `runs/starts`, and the same command goes on where it stopped. The table
lands in `benchmarks/results`.
"""

import argparse
import csv
import random
from collections import Counter
from pathlib import Path

import torch

from benchmarks.tables import RECIPES
from benchmarks.teaching import RESULTS, answer, share, with_root
from tokenselect import load_model
from tokenselect.data.annotations import matches
from tokenselect.inference.memory import keep_freed_memory
from tokenselect.locking import write_whole
from tokenselect.measure.significance import compare_answers
from tokenselect.models import GENERATED
from tokenselect.training.build import recipe_of
from tokenselect.training.data import PARTS, build_test_set, read_part
from tokenselect.training.recipe import read_recipe
from tokenselect.training.run import train
from tokenselect.training.sections import DataRecipe

RUNS = Path("runs/starts")
DIGITS = [f"--data.{part}.annotations=trimmed_digit.tsv" for part in PARTS]
TRAINED = {  # data → the recipe that trains from scratch, and what is changed in it
    "lsa20": ("lsa20_mvit_dense", []),
    "gestures5": ("gestures5_mvit_dense", []),
    "grid": ("grid_words", ["--data.table.label", "digit", *DIGITS]),  # one trimmed word
}
WARMUP = 0.075  # of the epochs: 3 of 40, as the recipes have it
STARTS = ("scratch", GENERATED)


def main() -> None:
    """Train and test what is missing, and write the table."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("model", choices=["mvit_mini", "video_swin_mini"])
    parser.add_argument("--data", required=True, choices=list(TRAINED))
    parser.add_argument("--root", required=True, help="folder of the videos")
    parser.add_argument("--epochs", type=int, nargs="+", default=[5, 10, 40])
    parser.add_argument("--clips", type=int, help="to learn from; all if not given")
    parser.add_argument("--seeds", type=int, default=3)
    parser.add_argument("--weights", default=GENERATED, help="pretrained ones; the package's")
    parser.add_argument("--frames", type=int, default=8, help="of a clip")
    parser.add_argument("--size", type=int, default=48, help="rows and columns of a frame")
    settings = parser.parse_args()
    keep_freed_memory()
    command = f"python -m benchmarks.pretrained_start {settings.model} --data {settings.data}"
    shape = f"{settings.frames}×{settings.size}×{settings.size}"
    told = f"--frames {settings.frames} --size {settings.size} --root ROOT"
    told += f" --epochs {' '.join(map(str, settings.epochs))} --seeds {settings.seeds}"
    told += f" --clips {settings.clips}" if settings.clips else ""
    lines = [
        f"{command} {told}\n",
        "| model | data | clip | epochs | from scratch | pretrained | gain |",
        "| --- | --- | --- | --- | --- | --- | --- |",
    ]
    few = f"_{settings.clips}" if settings.clips else ""
    out = RESULTS / f"starts_{settings.data}{few}_{settings.model}.txt"
    for epochs in settings.epochs:
        found = {start: answer_all(settings, start, epochs) for start in STARTS}
        gain = compare_answers(found[GENERATED], found["scratch"])
        cells = [settings.model, settings.data, shape, str(epochs), *map(describe, found.values())]
        cells.append(f"{100 * gain.difference:+.1f} (p {gain.p:.1g})")
        lines.append(f"| {' | '.join(cells)} |")
        print(lines[-1], flush=True)
        write_whole(out, "\n".join(lines) + "\n")


def answer_all(settings: argparse.Namespace, start: str, epochs: int) -> list[str]:
    """Give the answers of every seed: 1 where right, 0 elsewhere."""
    return [answer_of(settings, start, epochs, seed) for seed in range(settings.seeds)]


def answer_of(settings: argparse.Namespace, start: str, epochs: int, seed: int) -> str:
    """Train and test one run, unless that is done."""
    shape = f"{settings.frames}x{settings.size}"
    name = f"{settings.data}_{settings.model}_{shape}_{start}_{epochs}_s{seed}"
    name += f"_{settings.clips}" if settings.clips else ""
    known = RUNS / name / "answers.txt"
    if known.exists():
        return known.read_text().strip()
    options = ["--name", name, "--runs", str(RUNS), "--seed", str(seed), "--threads", "1"]
    options += ["--data.root", settings.root, "--data.workers", "0"]
    options += ["--data.frames", str(settings.frames), "--data.size", str(settings.size)]
    options += ["--model.name", settings.model]
    options += ["--model.weights", settings.weights if start == GENERATED else "null"]
    options += ["--schedule.epochs", str(epochs), "--validate_every", str(epochs)]
    options += ["--schedule.warmup_epochs", f"{WARMUP * epochs:g}"]
    recipe, changes = TRAINED[settings.data]
    path = RECIPES / f"{recipe}.yaml"
    if settings.clips:
        table = write_few(read_recipe(path, [*options, *changes]).data, settings.clips)
        changes = [*changes, f"--data.train.annotations={table.resolve()}"]
    train(read_recipe(path, [*options, *changes]), resume=True)
    model = load_model(RUNS / name / "last")
    answers = answer(model, build_test_set(with_root(recipe_of(model), settings.root).data, "test"))
    print(f"{name}: {share(answers):.1%}", flush=True)
    write_whole(known, answers + "\n")
    return answers


def write_few(data: DataRecipe, clips: int) -> Path:
    """Write a table of a few of the training clips, as many of each class; the seeds share it."""
    assert data.root and data.table and data.train.annotations
    source = Path(data.root) / data.train.annotations
    with source.open(newline="", encoding="utf-8") as file:
        rows = list(csv.reader(file, delimiter="\t"))
    kept = [] if data.table.columns else [rows.pop(0)]
    columns = list(data.table.columns or kept[0])
    most = clips // len(read_part(data, "train").class_names)
    random.Random(0).shuffle(rows)
    taken: Counter[str] = Counter()
    for row in rows:
        cells = dict(zip(columns, row, strict=True))
        label = cells[data.table.label]
        is_asked = all(matches(cells[name], values) for name, values in data.train.where.items())
        if is_asked and taken[label] < most:
            taken[label] += 1
            kept.append(row)
    path = RUNS / f"{source.parent.name}_{source.stem}_{clips}.tsv"
    path.parent.mkdir(parents=True, exist_ok=True)
    with path.open("w", newline="", encoding="utf-8") as file:
        csv.writer(file, delimiter="\t", lineterminator="\n").writerows(kept)
    return path


def describe(answers: list[str]) -> str:
    """Write the mean over seeds, and their spread."""
    shares = 100 * torch.tensor([share(one) for one in answers])
    return f"{shares.mean():.1f}" + (f" ± {shares.std():.1f}" if len(answers) > 1 else "") + " %"


if __name__ == "__main__":
    main()
