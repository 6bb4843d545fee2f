"""A comparison that takes a second: few clips, few frames, one epoch."""

from pathlib import Path

from tokenselect.comparison.planning import Comparison, Line, cross
from tokenselect.training.recipe import Recipe, recipe_from_dict


def tiny_recipe() -> Recipe:
    return recipe_from_dict(
        {
            "name": "tiny",
            "data": {"frames": 8, "size": 32, "train_clips": 8, "val_clips": 4, "test_clips": 16},
            "augmentation": {"mixup": 0, "cutmix": 0, "label_smoothing": 0.0},
            "schedule": {"epochs": 1, "warmup_epochs": 0.5, "batch_size": 4},
            "device": "cpu",
        }
    )


def tiny_comparison(folder: Path, lines: list[Line] | None = None, **more) -> Comparison:
    lines = lines or cross(["T0_0.5"], ["stts-exact", "random"])
    settings = {"dense": tiny_recipe(), "seeds": [0, 1], "shares_dense": True, **more}
    return Comparison(folder=folder, recipe=tiny_recipe(), lines=lines, **settings)
