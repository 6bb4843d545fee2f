"""Weights to start from, and models back from checkpoints."""

from __future__ import annotations

import logging
from dataclasses import dataclass, replace
from pathlib import Path

from torch import nn

from tokenselect.insertion import insert_selectors
from tokenselect.models import create_model
from tokenselect.training.checkpoint import load_weights
from tokenselect.training.optimizer import SELECTORS
from tokenselect.training.recipe import ModelRecipe, Recipe, recipe_from_dict

logger = logging.getLogger(__name__)


def build_model(model: ModelRecipe, *, num_classes: int, frames: int, size: int) -> nn.Module:
    """Build a model with its selectors and random weights, on the default device."""
    built = create_model(model.name, num_classes=num_classes, frames=frames, size=size)
    return insert_selectors(
        built,
        model.plan,
        method=model.method,
        scorer=model.scorer,
        is_tokenwise=model.is_tokenwise,
    )


def start_from(model: nn.Module, path: Path) -> list[str]:
    """Load a checkpoint to fine-tune; a dense one serves every plan.

    Selectors that the checkpoint does not have stay as they are, as does a classifier of another
    number of classes. Anything else that is missing, unknown or of another shape is an error.

    Args:
        model: dense or with selectors.
        path: as `find_checkpoint` takes it.

    Returns:
        Names of the parameters that were left as they are.
    """
    weights, _ = load_weights(path)
    own = model.state_dict()
    wrong = {name for name in own if name in weights and own[name].shape != weights[name].shape}
    head = {name for name in wrong if own[name].shape[1:] == weights[name].shape[1:]}
    missing = own.keys() - weights.keys()
    unknown = {name for name in weights.keys() - own.keys() if not name.startswith(SELECTORS)}
    problems = {
        "of another shape": {n for n in wrong - head if not n.startswith(SELECTORS)},
        "missing": {name for name in missing if not name.startswith(SELECTORS)},
        "unknown": unknown,
    }
    for what, names in problems.items():
        if names:
            raise ValueError(
                f"{path} does not fit the model, {what}: {', '.join(sorted(names)[:5])}"
            )
    model.load_state_dict(
        {name: value for name, value in weights.items() if name in own and name not in wrong},
        strict=False,
    )
    left = sorted(missing | wrong)
    if left:
        logger.info("left as initialised: %s", ", ".join(left))
    return left


@dataclass(frozen=True)
class TrainedModel:
    """A model from a checkpoint, with what it was trained on.

    Attributes:
        model: in evaluation mode.
        recipe: of its training.
        class_names: of its outputs.
        plan: what it selects now.
    """

    model: nn.Module
    recipe: Recipe
    class_names: list[str]
    plan: str


def load_trained(
    path: str | Path, *, plan: str | None = None, method: str | None = None
) -> TrainedModel:
    """Build the model of a checkpoint that a run has written.

    Args:
        path: a run's folder (its best is taken), a checkpoint's folder or its weights' file.
        plan: in place of the trained one; a selector keeps its weights if it sits at the same
            site, whatever it keeps. "dense" removes all.
        method: in place of the trained one.
    """
    weights, metadata = load_weights(Path(path))
    if "recipe" not in metadata:
        raise ValueError(f"{path} was not written by `tokenselect train`: it holds no recipe")
    recipe = recipe_from_dict(metadata["recipe"])
    own = recipe.model
    wanted = replace(own, plan=own.plan if plan is None else plan, method=method or own.method)
    model = build_model(
        wanted,
        num_classes=metadata["num_classes"],
        frames=recipe.data.frames,
        size=recipe.data.size,
    )
    untrained = model.state_dict().keys() - weights.keys()
    if untrained:
        sites = sorted({name.removeprefix(SELECTORS).split(".")[0] for name in untrained})
        raise ValueError(
            f"plan {wanted.plan!r} selects at {', '.join(sites)}, where {path} "
            f"(plan {recipe.model.plan!r}) has no trained selector"
        )
    known = model.state_dict().keys()
    model.load_state_dict({name: value for name, value in weights.items() if name in known})
    return TrainedModel(model.eval(), recipe, list(metadata["class_names"]), wanted.plan)
