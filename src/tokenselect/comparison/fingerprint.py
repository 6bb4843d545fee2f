"""What a result depends on beyond the words of its recipe, as short texts for its key."""

from __future__ import annotations

import functools
import hashlib
import json
from dataclasses import replace
from pathlib import Path

import torch

from tokenselect.data.synthetic import SPLITS, SyntheticActions
from tokenselect.models import create_model
from tokenselect.profiling import count_macs
from tokenselect.training.build_data import PARTS, list_videos
from tokenselect.training.recipe import DataRecipe, ModelRecipe, Recipe
from tokenselect.training.trained import build_model


def fingerprint(recipe: Recipe) -> list[str]:
    """Tell a recipe's backbone, selectors and clips from others of the same names."""
    data = recipe.data
    shape = {"frames": data.frames, "size": data.size}
    selecting = replace(recipe.model, weights=None, budgets=tuple(recipe.model.budgets))
    return [
        backbone_mark(recipe.model.name, **shape),
        selector_mark(selecting, **shape),
        clips_mark(json.dumps(_plain(data), sort_keys=True), data),
    ]


@functools.cache
def backbone_mark(name: str, *, frames: int, size: int) -> str:
    """Give the shapes and the cost of a dense model."""
    model = create_model(name, num_classes=2, frames=frames, size=size)
    shapes = {name: list(value.shape) for name, value in model.state_dict().items()}
    return digest([shapes, count_macs(model, 1, 3, frames, size, size).total])


def selector_mark(model: ModelRecipe, *, frames: int, size: int) -> str:
    """Give the shapes of a model's selectors."""
    return _try_building(model, frames, size)[0]


def find_refusal(recipe: Recipe) -> str | None:
    """Say why a recipe's method cannot be at a site of its plan, if it cannot."""
    model = replace(recipe.model, weights=None, budgets=tuple(recipe.model.budgets))
    return _try_building(model, recipe.data.frames, recipe.data.size)[1]


@functools.cache
def _try_building(model: ModelRecipe, frames: int, size: int) -> tuple[str, str | None]:
    """Give a mark of the shapes, and why there are none."""
    try:
        with torch.device("meta"):
            built = build_model(model, num_classes=2, frames=frames, size=size)
    except ValueError as error:
        return "none", str(error)
    return digest({name: list(value.shape) for name, value in built.state_dict().items()}), None


_marks: dict[str, str] = {}


def clips_mark(text: str, data: DataRecipe) -> str:
    """Give the first synthetic clip of each part, or the names and labels of all videos.

    Args:
        text: under which the answer is remembered.
        data: where clips come from.
    """
    if text not in _marks:
        if data.source == "synthetic":
            clips = [
                SyntheticActions(1, frames=data.frames, size=data.size, split=split)
                for split in SPLITS
            ]
            pixels = b"".join(clip[0][0].numpy().tobytes() for clip in clips)
            _marks[text] = hashlib.sha256(pixels).hexdigest()
        else:
            videos = [list_videos(data, getattr(data, part), part).samples for part in PARTS]
            names = [[(Path(s.path).name, s.label) for s in samples] for samples in videos]
            _marks[text] = digest(names)
    return _marks[text]


def digest(values: object) -> str:
    """Give a short text that differs for other values."""
    return hashlib.sha256(json.dumps(values, sort_keys=True).encode()).hexdigest()[:16]


def _plain(data: DataRecipe) -> dict[str, object]:
    return {name: repr(value) for name, value in vars(data).items()}
