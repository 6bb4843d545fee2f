"""Train what the tables of GRID start from: a dense model for each word that is asked for.

    python -m benchmarks.grid_clips CORPUS ROOT
    python -m benchmarks.grid_dense ROOT --data grid_cut --words adverb digit

A dense model starts from one of trimmed words (`recipes/grid_words.yaml`): that of the first four
words of a sentence, which has not seen the adverb, or for the digit one that went on with the last
four. The runs are `runs/grid_words_front`, `runs/grid_words_back` and `runs/DATA_WORD_mvit_dense`;
what is finished is not trained again.
"""

import argparse

from benchmarks.grid_clips import ASKED, START
from benchmarks.tables import RECIPES
from tokenselect.inference.memory import keep_freed_memory
from tokenselect.training.data import PARTS
from tokenselect.training.recipe import read_recipe
from tokenselect.training.run import train


def main() -> None:
    """Train the dense models that were asked for, and before them their starts."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("root", help="folder that grid_clips wrote")
    parser.add_argument("--data", default="grid_cut", choices=["grid", "grid_cut"])
    parser.add_argument("--words", nargs="+", default=ASKED, choices=ASKED)
    settings = parser.parse_args()
    keep_freed_memory()
    run("grid_words", "grid_words_front", settings.root, table="words_front.tsv")
    for word in settings.words:
        if START[word] == "back":
            options = ["--model.weights", "runs/grid_words_front/last", "--schedule.epochs", "6"]
            run("grid_words", "grid_words_back", settings.root, *options, table="words_back.tsv")
        start = f"runs/grid_words_{START[word]}/last"
        recipe, name = f"{settings.data}_mvit_dense", f"{settings.data}_{word}_mvit_dense"
        table = f"cut_{word}.tsv" if settings.data == "grid_cut" else "whole.tsv"
        options = ["--data.table.label", word, "--model.weights", start]
        run(recipe, name, settings.root, *options, table=table)


def run(recipe: str, name: str, root: str, *options: str, table: str) -> None:
    """Train a recipe under a name, with a table in place of its own."""
    words = ["--name", name, "--data.root", root, "--data.workers", "0", "--threads", "1", *options]
    words += [f"--data.{part}.annotations={table}" for part in PARTS]
    print(name, train(read_recipe(RECIPES / f"{recipe}.yaml", words), resume=True), flush=True)


if __name__ == "__main__":
    main()
