"""A whole run: from a recipe to checkpoints and metrics in `runs/NAME/`."""

from __future__ import annotations

import torch
import yaml

from tokenselect.training.build import Changes, build_trainer
from tokenselect.training.checkpoint import load_state
from tokenselect.training.distributed import joined_processes, wait_for_all
from tokenselect.training.recipe import Recipe


def train(
    recipe: Recipe, *, resume: bool = False, changes: Changes | None = None
) -> dict[str, float]:
    """Train a model as the recipe says; checkpoints and metrics go to `runs/NAME/`.

    Args:
        recipe: what to train, on what, how.
        resume: continue the run of this name from its last checkpoint, exactly.
        changes: to the model and the clips that the recipe gives.

    Returns:
        Figures of the last validation; none if the run was finished before.
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
        trainer = build_trainer(recipe, processes, is_new=not has_begun, changes=changes)
        if resume:
            trainer.resume()
        wait_for_all()
        if processes.is_main:
            recipe.folder.mkdir(parents=True, exist_ok=True)
            text = yaml.safe_dump(recipe.to_dict(), sort_keys=False)
            (recipe.folder / "recipe.yaml").write_text(text)
        return trainer.run()
