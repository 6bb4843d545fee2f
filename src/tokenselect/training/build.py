"""From a recipe to a run: the only place where recipes are taken apart."""

from __future__ import annotations

import functools
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import torch
import yaml
from torch import Tensor, nn
from torch.utils.checkpoint import checkpoint
from torch.utils.data import DataLoader

from tokenselect.checkpoints.model import describe_model, load_model
from tokenselect.data import mix_clips, seeded_generator
from tokenselect.insertion import insert_selectors, set_plan, set_sigma
from tokenselect.measure.accuracy import count_answers
from tokenselect.models import create_model, find_weights
from tokenselect.training.checkpoint import load_state
from tokenselect.training.data import (
    ClipSet,
    EpochOrder,
    ProcessShare,
    build_loader,
    build_test_set,
    build_train_set,
)
from tokenselect.training.distributed import (
    Processes,
    joined_processes,
    spread,
    sum_over_processes,
    unwrap,
    wait_for_all,
)
from tokenselect.training.learner import ANY, Budgets, Learner, WeightAverage
from tokenselect.training.loop import Trainer
from tokenselect.training.optimizer import RateSchedule, SigmaSchedule, build_optimizer
from tokenselect.training.recipe import ModelRecipe, Recipe, ScheduleRecipe, recipe_from_dict
from tokenselect.training.step import Batch, Precision
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


@dataclass(frozen=True)
class Changes:
    """What a caller changes of a run that no recipe can say.

    Attributes:
        model: changes the model in place, after its weights are loaded.
        clips: gives the clips to train and validate on in place of the recipe's.
    """

    model: Callable[[nn.Module], object] = id
    clips: Callable[[ClipSet], ClipSet] = lambda clips: clips


AS_IT_IS = Changes()


def checkpoint_activations(model: nn.Module) -> None:
    """Let each block recompute its inside in the backward pass; names and hooks stay."""
    for block in model.blocks:  # type: ignore[union-attr]
        block.forward = functools.partial(checkpoint, block.forward, use_reentrant=False)


def build_learner(
    recipe: Recipe,
    processes: Processes,
    *,
    num_classes: int,
    steps_per_epoch: int,
    changes: Changes = AS_IT_IS,
) -> Learner:
    """Build what learns: model, optimizer, schedules."""
    schedule = recipe.schedule
    torch.manual_seed(recipe.seed)  # the same start in every process
    model = build_model(
        recipe.model, num_classes=num_classes, frames=recipe.data.frames, size=recipe.data.size
    ).to(processes.device)
    changes.model(model)
    selects = hasattr(model, "token_selectors")
    if recipe.model.activation_checkpointing:
        checkpoint_activations(model)
    if recipe.model.compile:
        model.compile()
    spread_model = spread(model, processes, recipe.strategy)
    total_steps = schedule.epochs * steps_per_epoch
    return Learner(
        model=spread_model,
        optimizer=build_optimizer(
            unwrap(spread_model),
            weight_decay=schedule.weight_decay,
            backbone_factor=schedule.backbone_factor,
        ),
        precision=Precision(recipe.precision, processes.device),
        processes=processes,
        rates=build_rates(schedule, steps_per_epoch),
        sigmas=SigmaSchedule(total_steps=total_steps, start=schedule.sigma) if selects else None,
        set_sigma=set_sigma,
        budgets=build_budgets(recipe),
        set_plan=set_plan,
        mix=build_mix(recipe, num_classes),
        clip_norm=schedule.clip_norm,
        average=WeightAverage(spread_model, decay=schedule.ema) if schedule.ema else None,
        seed=recipe.seed,
    )


def build_budgets(recipe: Recipe) -> Budgets | None:
    """Give the plans of a model for any budget, or None."""
    return Budgets.of(recipe.model.budgets) if recipe.model.plan == ANY else None


def build_rates(schedule: ScheduleRecipe, steps_per_epoch: int) -> RateSchedule:
    """Turn epochs into steps."""
    return RateSchedule(
        total_steps=schedule.epochs * steps_per_epoch,
        warmup_steps=round(schedule.warmup_epochs * steps_per_epoch),
        peak=schedule.rate,
        warmup_start=schedule.warmup_start,
        end=schedule.end_rate,
    )


def build_mix(recipe: Recipe, num_classes: int) -> Callable[[Tensor, Tensor], Batch]:
    """Build mixup, cutmix and label smoothing; what is drawn follows from the step's seed."""
    wanted = recipe.augmentation

    def mix(clips: Tensor, labels: Tensor) -> Batch:
        return mix_clips(
            clips,
            labels,
            num_classes=num_classes,
            generator=seeded_generator(int(torch.randint(2**62, ()))),
            mixup=wanted.mixup,
            cutmix=wanted.cutmix,
            smoothing=wanted.label_smoothing,
        )

    return mix


def build_validation(
    clips: ClipSet, recipe: Recipe, processes: Processes
) -> Callable[[nn.Module], dict[str, float]]:
    """Build the function that validates a model over all processes."""
    loader: DataLoader[Any] = DataLoader(
        ProcessShare(clips.dataset, rank=processes.rank, processes=processes.count),
        batch_size=recipe.schedule.batch_size // (processes.count * recipe.schedule.accumulation),
        num_workers=recipe.data.workers,
        collate_fn=clips.collate,
    )
    precision = Precision(recipe.precision, processes.device)
    budgets = build_budgets(recipe)

    def validate(model: nn.Module) -> dict[str, float]:
        if budgets is not None:
            set_plan(unwrap(model), budgets.plans[0])
        counter, _ = count_answers(
            unwrap(model),
            loader,
            num_classes=len(clips.class_names),
            device=processes.device,
            autocast=precision.autocast,
        )
        sum_over_processes(counter.counts)
        accuracy = counter.result()
        return {"top1": accuracy.top1, "top5": accuracy.top5}

    return validate


def build_trainer(recipe: Recipe, processes: Processes, *, changes: Changes = AS_IT_IS) -> Trainer:
    """Build a run, ready to start or to resume."""
    schedule = recipe.schedule
    clips = changes.clips(build_train_set(recipe.data, recipe.augmentation, seed=recipe.seed))
    val = changes.clips(build_test_set(recipe.data, "val"))
    order = EpochOrder(
        len(clips),
        batch_size=schedule.batch_size,
        seed=recipe.seed,
        rank=processes.rank,
        processes=processes.count,
        parts=schedule.accumulation,
    )
    num_classes = recipe.data.num_classes or len(clips.class_names)
    learner = build_learner(
        recipe,
        processes,
        num_classes=num_classes,
        steps_per_epoch=order.batches_per_epoch,
        changes=changes,
    )
    return Trainer(
        folder=recipe.folder,
        learner=learner,
        loader=build_loader(
            clips.dataset,
            order,
            workers=recipe.data.workers,
            collate=clips.collate,
            pin_memory=processes.device.type == "cuda",
        ),
        order=order,
        epochs=schedule.epochs,
        validate=build_validation(val, recipe, processes),
        metadata={
            "model": describe_model(unwrap(learner.model)),
            "recipe": recipe.to_dict(),
            "num_classes": num_classes,
            "class_names": list(clips.class_names),
        },
        checkpoint_seconds=60 * recipe.checkpoint_minutes,
        checkpoint_steps=recipe.checkpoint_steps,
        validate_every=recipe.validate_every,
        set_epoch=clips.set_epoch,
        count_replaced=clips.count_replaced,
    )


def train_recipe(
    recipe: Recipe, *, resume: bool = False, changes: Changes = AS_IT_IS
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
        trainer = build_trainer(recipe, processes, changes=changes)
        if resume:
            trainer.resume()
        wait_for_all()
        if processes.is_main:
            recipe.folder.mkdir(parents=True, exist_ok=True)
            text = yaml.safe_dump(recipe.to_dict(), sort_keys=False)
            (recipe.folder / "recipe.yaml").write_text(text)
        return trainer.run()
