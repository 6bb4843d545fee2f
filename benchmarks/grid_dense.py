"""Train what the tables of GRID start from: a dense model for each word that is asked for.

    python -m benchmarks.grid_clips CORPUS ROOT
    python -m benchmarks.grid_dense ROOT --data grid_cut --words adverb digit

A dense model starts from one of trimmed words (`recipes/grid_words.yaml`): that of the first four
words of a sentence, which has not seen the adverb, or for the digit one that went on with the last
four. For verb, colour and digit it then learns the word in question, trimmed, before it sees
sentences. Colour and digit of whole sentences are learnt from cut ones first, and the digit, one of
ten, learns longer from those, as colour and digit of cut faces do. One that sees whole faces starts
from trimmed words in faces, which start from those of mouths alone (`--data grid_faces --faces
FACES`). What is finished is not trained again. The runs are `runs/grid_words_front`, …, and
`runs/DATA_WORD_mvit_dense`.
"""

import argparse
from collections.abc import Iterable

from benchmarks.grid_clips import ASKED, LISTS, START
from benchmarks.tables import RECIPES
from tokenselect.inference.memory import keep_freed_memory
from tokenselect.training.data import PARTS
from tokenselect.training.recipe import read_recipe
from tokenselect.training.run import train

EPOCHS = {  # where those of the recipe are too few
    ("grid_cut", "digit"): 6,
    ("grid_faces_cut", "colour"): 4,
    ("grid_faces_cut", "digit"): 6,
}


def main() -> None:
    """Train the dense models that were asked for, and before them their starts."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("root", help="folder that grid_clips wrote")
    parser.add_argument("--faces", help="folder that grid_clips --faces wrote")
    parser.add_argument("--data", default="grid_cut", choices=list(LISTS))
    parser.add_argument("--words", nargs="+", default=ASKED, choices=ASKED)
    settings = parser.parse_args()
    is_face = "faces" in settings.data
    if is_face and not settings.faces:
        parser.error(f"--data {settings.data} needs --faces FACES")
    keep_freed_memory()
    for word in settings.words:
        start = train_words(START[word], "grid_words", settings.root)
        if is_face:
            start = train_words(START[word], "grid_faces_words", settings.faces, start=start)
        root = settings.faces if is_face else settings.root
        for data in steps_to(settings.data, word):
            options = ["--data.table.label", word, "--model.weights", f"{start}/last"]
            name, table = f"{data}_{word}_mvit_dense", LISTS[data].format(word=word)
            if (data, word) in EPOCHS:
                options += ["--schedule.epochs", str(EPOCHS[data, word])]
            start = run(f"{data}_mvit_dense", name, root, *options, table=table)


def steps_to(data: str, word: str) -> Iterable[str]:
    """Name the data that a dense model learns one after the other; the last is what is wanted."""
    if "faces" in data:
        return dict.fromkeys(["grid_faces", data])
    if word == "adverb":
        return [data]
    is_hard = data == "grid" and word in ("colour", "digit")
    easier = ["grid_trimmed", "grid_cut"] if is_hard else ["grid_trimmed"]
    return dict.fromkeys([*easier, data])


def train_words(part: str, recipe: str, root: str, *, start: str | None = None) -> str:
    """Train trimmed words, the last four of a sentence behind the first four; give the run."""
    options = [] if start is None else ["--model.weights", f"{start}/last"]
    if start is None and part == "back":
        front = train_words("front", recipe, root)
        options = ["--model.weights", f"{front}/last", "--schedule.epochs", "6"]
    return run(recipe, f"{recipe}_{part}", root, *options, table=f"words_{part}.tsv")


def run(recipe: str, name: str, root: str, *options: str, table: str) -> str:
    """Train a recipe under a name, with a table in place of its own; give the run."""
    words = ["--name", name, "--data.root", root, "--data.workers", "0", "--threads", "1", *options]
    words += [f"--data.{part}.annotations={table}" for part in PARTS]
    print(name, train(read_recipe(RECIPES / f"{recipe}.yaml", words), resume=True), flush=True)
    return f"runs/{name}"


if __name__ == "__main__":
    main()
