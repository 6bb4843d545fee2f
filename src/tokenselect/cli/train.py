"""`tokenselect train RECIPE.yaml [--resume] [--with-base] [--key value …]`."""

import logging
import os
import sys
from collections.abc import Sequence
from pathlib import Path

from tokenselect.cli.evaluate import evaluate
from tokenselect.cli.options import ClipOptions
from tokenselect.training.build import part_to_test
from tokenselect.training.recipe import base_of, read_recipe, recipe_parser
from tokenselect.training.run import train

FLAGS = ("--resume", "--with-base")
SHARED = (  # what a recipe's base is trained with, too
    *("--data.root", "--data.cache", "--data.workers"),
    *("--device", "--precision", "--strategy", "--threads"),
)


def run(arguments: Sequence[str]) -> None:
    """Run the command with its words after `tokenselect train`."""
    words = list(arguments)
    if not words or words[0].startswith("-"):
        recipe_parser().print_help()
        raise SystemExit(0 if {"-h", "--help"} & set(words) else 2)
    logging.basicConfig(level=logging.WARNING, stream=sys.stderr, format="%(message)s")
    path, overrides = Path(words[0]), [word for word in words[1:] if word not in FLAGS]
    if "--with-base" in words:
        train_base(path, overrides)
    recipe = read_recipe(path, overrides)
    is_ended, folder = train(recipe, resume="--resume" in words), recipe.folder
    if not is_ended or part_to_test(recipe.data) != "test" or int(os.environ.get("RANK", 0)):
        return
    evaluate(  # the best checkpoint
        str(folder),
        "test",
        options=ClipOptions(workers=recipe.data.workers, device=recipe.device),
        output=str(folder / "test.json"),
        predictions=str(folder / "test.csv"),
        confusion=str(folder / "confusion.png"),
    )


def train_base(path: Path, overrides: Sequence[str]) -> None:
    """Train the model that a recipe starts from, unless that is done already.

    The weights must be a run of the recipe's base; that one's base is trained before it.
    """
    recipe, base = read_recipe(path, overrides), base_of(path)
    start = recipe.model.weights
    if start is None or base is None:
        raise ValueError(f"--with-base: {path} must have a base and start from its run")
    below = read_recipe(base, shared_options(overrides))
    if Path(start) not in (below.folder, below.folder / "last", below.folder / "best"):
        raise ValueError(f"--with-base: {path} starts from {start}, its base is {below.folder}")
    if below.model.weights is not None:
        train_base(base, shared_options(overrides))
    train(below, resume=True)


def shared_options(words: Sequence[str]) -> list[str]:
    """Pick the options that hold for a recipe's base as well, with their values."""
    pairs = zip(["", *words], words, strict=False)
    return [
        word
        for before, word in pairs
        if word.partition("=")[0] in SHARED or (before in SHARED and not word.startswith("--"))
    ]
