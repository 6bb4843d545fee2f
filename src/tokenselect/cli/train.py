"""`tokenselect train RECIPE.yaml [--key value …]`."""

from __future__ import annotations

import logging
import sys
from collections.abc import Sequence

from tokenselect.training.recipe import read_recipe, recipe_parser
from tokenselect.training.run import train

USAGE = "tokenselect train RECIPE.yaml [--resume] [--key value …]"


def run(arguments: Sequence[str]) -> None:
    """Run the command with its words after `tokenselect train`."""
    words = list(arguments)
    if not words or words[0].startswith("-"):
        recipe_parser().print_help()
        raise SystemExit(0 if {"-h", "--help"} & set(words) else f"usage: {USAGE}")
    logging.basicConfig(level=logging.WARNING, stream=sys.stderr, format="%(message)s")
    resume = "--resume" in words
    train(read_recipe(words[0], [w for w in words[1:] if w != "--resume"]), resume=resume)
