"""Recipes of a comparison where none is given."""

from __future__ import annotations

from dataclasses import replace

from tokenselect.training.data_recipe import DataRecipe, PartRecipe
from tokenselect.training.recipe import (
    AugmentationRecipe,
    ModelRecipe,
    Recipe,
    ScheduleRecipe,
)


def default_recipe(dataset: str) -> Recipe:
    """Give a fine-tuning that two cores finish: of synthetic actions, or of a folder of videos."""
    schedule = ScheduleRecipe(epochs=4, warmup_epochs=0.5, rate=2e-2, backbone_factor=0.01)
    if dataset == "synthetic":
        data = DataRecipe(size=64, train_clips=2000, val_clips=200, test_clips=800)
        augmentation = AugmentationRecipe(mixup=0.0, cutmix=0.0, label_smoothing=0.0)
    else:
        data = DataRecipe(
            source="videos",
            train=PartRecipe(annotations="train"),
            val=PartRecipe(annotations="val"),
            test=PartRecipe(annotations="test"),
            stride=None,
            size=64,
        )
        augmentation = AugmentationRecipe(
            scale=(0.5, 1.0), rand_augment_ops=0, erasing=0.0, mixup=0.0, cutmix=0.0, repeats=1
        )
    return Recipe(
        name="comparison",
        data=data,
        model=ModelRecipe(name="mvit_mini", scorer="from-uniform"),
        augmentation=augmentation,
        schedule=schedule,
    )


def default_dense(tuning: Recipe) -> Recipe:
    """Give the training from scratch before a fine-tuning: longer, all weights at the full rate."""
    schedule = replace(
        tuning.schedule, epochs=4 * tuning.schedule.epochs, rate=8e-4, backbone_factor=1.0
    )
    return replace(tuning, schedule=schedule)
