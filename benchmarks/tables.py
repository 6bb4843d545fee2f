"""The paper's tables on small models: which lines are in each, and the command that fills it.

    tokenselect train recipes/lsa20_mvit_dense.yaml --data.root ROOT
    python -m benchmarks.tables frames --data lsa20 --model mvit --root ROOT

A line's cells are fine-tuned from one dense model, for equally long, with every seed; "{seed}" in
`--dense` stands for the seed. What is finished stays in `--work` and is shared by the tables; they
land in `benchmarks/results/tables`.
"""

import argparse
import json
import shlex
import shutil
import subprocess
import sys
from pathlib import Path

from benchmarks.grid_clips import ASKED as WORDS
from benchmarks.grid_clips import LISTS
from tokenselect.comparison.compare import run_comparison
from tokenselect.comparison.planning import Comparison, Line, read_lines
from tokenselect.comparison.trials import Trial
from tokenselect.inference.memory import keep_freed_memory
from tokenselect.training.data import PARTS
from tokenselect.training.recipe import Recipe, read_recipe

LINES = Path(__file__).parent / "tables"
RESULTS = Path(__file__).parent / "results" / "tables"
RECIPES = Path(__file__).parents[1] / "recipes"
TUNED = {  # data → the plan in the name of its fine-tuning recipe
    "synthetic": "T0_0.5-S4_0.5",
    "lsa20": "T0_0.5-S4_0.5",
    "gestures5": "T0_0.5-S4_0.5",
    "streams": "T0_0.17",
    "grid": "T0_0.17",
    "grid_cut": "T0_0.25",
    "grid_faces": "S0_0.16",
    "grid_faces_cut": "T0_0.25-S0_0.16",
}
EPOCHS = {("grid_faces_cut", "digit"): 12}  # of every line, where those of the recipe are too few
UNTRAINED = ("free",)  # the dense weights are tested as they are
WITH_DENSE = ("decisive",)  # the dense model is fine-tuned, too, to see what that alone gives
WITHOUT_TRUTH = (*UNTRAINED, "today")  # the best possible selection is in other tables
UNSAID = ("--work", "--workers", "--repeats")  # no result depends on them
TABLES = sorted(path.stem for path in LINES.glob("*.yaml"))


def main() -> None:
    """Fill the tables that were asked for, one after the other."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("tables", nargs="+", choices=TABLES)
    parser.add_argument("--data", default="synthetic", choices=list(TUNED))
    parser.add_argument(
        "--word", default="adverb", help="of GRID, that is asked for", choices=WORDS
    )
    parser.add_argument("--model", default="mvit", choices=["mvit", "swin"])
    parser.add_argument("--root", help="folder of the videos")
    parser.add_argument("--dense", help="weights to start from; the dense run's last if not given")
    parser.add_argument("--seeds", type=int, default=3)
    parser.add_argument("--workers", type=int, default=2, help="processes; 0 starts none")
    parser.add_argument("--repeats", type=int, default=15, help="of the timing; 0 leaves it out")
    parser.add_argument("--work", type=Path, default=Path("runs/tables"))
    settings = parser.parse_args()
    keep_freed_memory()
    recipe = choose_recipe(settings)
    for table in settings.tables:
        fill(table, recipe, settings)


def choose_recipe(settings: argparse.Namespace) -> Recipe:
    """Read the fine-tuning of a data set and a model."""
    path = RECIPES / f"{settings.data}_{settings.model}_{TUNED[settings.data]}.yaml"
    options = ["--data.root", settings.root] if settings.root else []
    if settings.data.startswith("grid"):
        dense = f"runs/{name_data(settings)}_{settings.model}_dense"
        options += ["--data.table.label", settings.word, "--model.weights", dense]
        table = LISTS[settings.data].format(word=settings.word)
        options += [f"--data.{part}.annotations={table}" for part in PARTS]
    if epochs := EPOCHS.get((settings.data, settings.word)):
        options += ["--schedule.epochs", str(epochs)]
    return read_recipe(path, options)


def name_data(settings: argparse.Namespace) -> str:
    """Name the data, with the word that is asked for where there are several."""
    return f"{settings.data}_{settings.word}" if "grid" in settings.data else str(settings.data)


def fill(table: str, recipe: Recipe, settings: argparse.Namespace) -> None:
    """Train and test what is missing of a table, then write it."""
    name = f"{name_data(settings)}_{settings.model}"
    folder = settings.work / name
    dense = settings.dense or f"{recipe.model.weights}/last"  # its last weights, chosen by nothing
    wanted = Comparison(
        folder=folder,
        recipe=recipe,
        dense=dense,
        lines=choose_lines(table, settings.data),
        seeds=range(settings.seeds),
        is_trained=table not in UNTRAINED,
        tunes_dense=table in WITH_DENSE,
    )
    run_comparison(
        wanted,
        title=f"{table}: {recipe.model.name} on {name_data(settings)}",
        command=shlex.join(["python", "-m", "benchmarks.tables", table, *said(sys.argv[1:])]),
        workers=settings.workers,
        repeats=settings.repeats,
        on_done=tell,
    )
    keep_results(folder, f"{name}_{table}")
    print((folder / "comparison.md").read_text(), flush=True)


def keep_results(folder: Path, name: str) -> None:
    """Copy a table to the results, without the places of this machine."""
    RESULTS.mkdir(parents=True, exist_ok=True)
    shutil.copy(folder / "comparison.png", RESULTS / f"{name}.png")
    ask = ["git", "rev-parse", "--short", "HEAD"]
    commit = subprocess.check_output(ask, cwd=RESULTS, text=True).strip()
    text = (folder / "comparison.md").read_text()
    (RESULTS / f"{name}.md").write_text(f"{text}\nCode of commit {commit}.\n")
    values = json.loads((folder / "comparison.json").read_text())
    values["recipe"]["data"] |= {"root": None, "cache": None}
    values["recipe"]["model"] |= {"weights": None}
    (RESULTS / f"{name}.json").write_text(json.dumps(values, indent=1) + "\n")


def choose_lines(table: str, data: str) -> list[Line]:
    """Read a table's lines; where the truth is known, the best possible selection joins them."""
    lines = read_lines(LINES / f"{table}.yaml")
    if data != "synthetic" or table in WITHOUT_TRUTH:
        return lines
    plans = dict.fromkeys(line.plan for line in lines)
    return [*lines, *(Line(plan, "oracle") for plan in plans)]


def said(words: list[str]) -> list[str]:
    """Give what a table's result depends on: ROOT, not where this machine has the videos."""
    kept = []
    for before, word in zip(["", *words], words, strict=False):
        if word in (*UNSAID, *TABLES) or before in UNSAID:
            continue
        kept.append("ROOT" if before == "--root" else word)
    return kept


def tell(trial: Trial, error: str | None) -> None:
    """Say which cell is done."""
    print(f"{trial.title}: {error}" if error else trial.title, file=sys.stderr, flush=True)


if __name__ == "__main__":
    main()
