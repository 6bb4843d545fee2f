"""What pretraining on generated video gives over a start from scratch.

    python -m benchmarks.pretrained_start mvit_mini --data lsa20 --root ROOT --epochs 5 10 40

`benchmarks.pretrain` made the weights that are in the package. Both starts are trained by the same
recipe for as many epochs, with every seed, and their last weights answer the same test clips; p is
that of the paired test. A run is kept in `runs/starts`, and the same command goes on where it
stopped. The table lands in `benchmarks/results`.
"""

import argparse
from pathlib import Path

import torch

from benchmarks.tables import RECIPES
from benchmarks.teaching import RESULTS, answer, share, with_root
from tokenselect import load_model
from tokenselect.inference.memory import keep_freed_memory
from tokenselect.locking import write_whole
from tokenselect.measure.significance import compare_answers
from tokenselect.models import GENERATED
from tokenselect.training.build import recipe_of
from tokenselect.training.data import build_test_set
from tokenselect.training.recipe import read_recipe
from tokenselect.training.run import train

RUNS = Path("runs/starts")
TRAINED = {  # data → the recipe that trains from scratch
    "lsa20": "lsa20_mvit_dense",
    "gestures5": "gestures5_mvit_dense",
    "grid": "grid_words",  # trimmed words
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
    lines = [
        f"{command} {told}\n",
        "| model | data | clip | epochs | from scratch | pretrained | gain |",
        "| --- | --- | --- | --- | --- | --- | --- |",
    ]
    out = RESULTS / f"starts_{settings.data}_{settings.model}.txt"
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
    train(read_recipe(RECIPES / f"{TRAINED[settings.data]}.yaml", options), resume=True)
    model = load_model(RUNS / name / "last")
    answers = answer(model, build_test_set(with_root(recipe_of(model), settings.root).data, "test"))
    print(f"{name}: {share(answers):.1%}", flush=True)
    write_whole(known, answers + "\n")
    return answers


def describe(answers: list[str]) -> str:
    """Write the mean over seeds, and their spread."""
    shares = 100 * torch.tensor([share(one) for one in answers])
    return f"{shares.mean():.1f}" + (f" ± {shares.std():.1f}" if len(answers) > 1 else "") + " %"


if __name__ == "__main__":
    main()
