"""Train what the tables of GRID start from: a dense model for each word that is asked for.

    python -m benchmarks.grid_clips CORPUS ROOT
    python -m benchmarks.grid_dense ROOT --data grid_cut --words adverb digit

A dense model starts from one of trimmed words (`recipes/grid_words.yaml`) that has not seen the
word it is asked for; verb and colour share such a start, digit and adverb another. The runs are
`runs/grid_words_START` and `runs/DATA_WORD_mvit_dense`; what is finished is not trained again.
"""

import argparse
from collections.abc import Sequence

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
    for word in settings.words:
        start = f"grid_words_{START[word]}"
        run(
            "grid_words", start, settings.root, {part: f"words_{START[word]}.tsv" for part in PARTS}
        )
        tables = {part: f"cut_{word}.tsv" for part in PARTS if settings.data == "grid_cut"}
        options = ["--data.table.label", word, "--model.weights", f"runs/{start}/last"]
        run(
            f"{settings.data}_mvit_dense",
            f"{settings.data}_{word}_mvit_dense",
            settings.root,
            tables,
            options,
        )


def run(
    recipe: str, name: str, root: str, tables: dict[str, str], options: Sequence[str] = ()
) -> None:
    """Train a recipe under a name, with tables in place of its own."""
    words = ["--name", name, "--data.root", root, "--data.workers", "0", "--threads", "1", *options]
    words += [f"--data.{part}.annotations={table}" for part, table in tables.items()]
    print(name, train(read_recipe(RECIPES / f"{recipe}.yaml", words), resume=True), flush=True)


if __name__ == "__main__":
    main()
