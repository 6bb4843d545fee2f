"""Models of recipes, new ones and trained ones."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path

from torch import nn

from tokenselect.insertion import insert_selectors
from tokenselect.models import create_model, find_weights
from tokenselect.pretrained import load_model
from tokenselect.training.budgets import ANY, Budgets
from tokenselect.training.recipe import ModelRecipe, Recipe, recipe_from_dict
from tokenselect.weights import load_weights


def build_model(model: ModelRecipe, *, num_classes: int, frames: int, size: int) -> nn.Module:
    """Build a model with its selectors and its starting weights."""
    built = create_model(model.name, num_classes=num_classes, frames=frames, size=size)
    insert_selectors(
        built,
        Budgets.of(model.budgets).whole if model.plan == ANY else model.plan,
        method=model.method,
        scorer=model.scorer,
        is_tokenwise=model.is_tokenwise,
    )
    if model.weights is not None:
        load_weights(built, find_weights(model.name, model.weights))
    return built


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
    class_names: tuple[str, ...]
    plan: str


def load_trained(
    path: str | Path, *, plan: str | None = None, method: str | None = None
) -> TrainedModel:
    """Build the model of a checkpoint that a run has written.

    Args:
        path: a run's folder (its best is taken), a checkpoint's folder or its weights' file.
        plan: in place of the trained one; see `load_model`.
        method: in place of the trained one.
    """
    saved = load_model(path, plan=plan, method=method)
    if "recipe" not in saved.metadata:
        raise ValueError(f"{path} was not written by `tokenselect train`: it holds no recipe")
    recipe = recipe_from_dict(saved.metadata["recipe"])
    return TrainedModel(saved.model, recipe, saved.class_names, str(saved.plan))
