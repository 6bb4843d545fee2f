"""`tokenselect train RECIPE.yaml [--key value …]`."""

from __future__ import annotations

import logging
import sys
from collections.abc import Sequence

import torch
import yaml

from tokenselect.training.build import build_trainer
from tokenselect.training.checkpoint import load_state
from tokenselect.training.distributed import joined_processes, wait_for_all
from tokenselect.training.recipe import Recipe, read_recipe, recipe_parser

USAGE = "tokenselect train RECIPE.yaml [--resume] [--key value …]"


def train(recipe: Recipe, *, resume: bool = False) -> dict[str, float]:
    """Train a model as the recipe says; checkpoints and metrics go to `runs/NAME/`.

    Args:
        recipe: what to train, on what, how.
        resume: continue the run of this name from its last checkpoint, exactly.

    Returns:
        Figures of the last validation.
    """
    if recipe.threads is not None:
        torch.set_num_threads(recipe.threads)
    with joined_processes(recipe.device) as processes:
        has_begun = load_state(recipe.folder) is not None
        if has_begun and not resume:
            raise FileExistsError(
                f"{recipe.folder} holds a run already: continue it with --resume, or give this "
                "one another --name"
            )
        trainer = build_trainer(recipe, processes)
        if resume:
            trainer.resume()
        wait_for_all()
        if processes.is_main:
            recipe.folder.mkdir(parents=True, exist_ok=True)
            text = yaml.safe_dump(recipe.to_dict(), sort_keys=False)
            (recipe.folder / "recipe.yaml").write_text(text)
        return trainer.run()


def run(arguments: Sequence[str]) -> None:
    """Run the command with its words after `tokenselect train`."""
    words = list(arguments)
    if not words or words[0].startswith("-"):
        recipe_parser().print_help()
        raise SystemExit(0 if {"-h", "--help"} & set(words) else f"usage: {USAGE}")
    logging.basicConfig(level=logging.WARNING, stream=sys.stderr, format="%(message)s")
    resume = "--resume" in words
    train(read_recipe(words[0], [w for w in words[1:] if w != "--resume"]), resume=resume)
