"""From a recipe to a run: the only place where recipes are taken apart."""

import functools
import logging
from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace

import torch
from torch import nn
from torch.utils.checkpoint import checkpoint

from tokenselect.checkpoints.model import describe_model, info_of
from tokenselect.data import mix_clips
from tokenselect.data.labels import shorten
from tokenselect.insertion import insert_selectors, selectors_of
from tokenselect.models import create_model, find_weights
from tokenselect.plan import SELECTORS
from tokenselect.selectors.build import has_scorer
from tokenselect.training.data import (
    ClipSet,
    EpochOrder,
    ProcessShare,
    build_loader,
    build_test_set,
    build_train_set,
    ignore_interrupts,
    read_part,
)
from tokenselect.training.distributed import Processes, bare_model, spread
from tokenselect.training.learner import ANY, Budgets, Learner, WeightAverage
from tokenselect.training.loop import Trainer
from tokenselect.training.optimizer import LrSchedule, SigmaSchedule, build_optimizer
from tokenselect.training.probation import Probation
from tokenselect.training.recipe import Recipe, recipe_from_dict
from tokenselect.training.sections import DataRecipe, ModelRecipe, ScheduleRecipe, blaming
from tokenselect.training.step import Precision
from tokenselect.training.teach import MOST_CLIPS, Shuffled
from tokenselect.weights import LoadedWeights, load_weights
from tokenselect.weights.load import HEAD

logger = logging.getLogger(__name__)


def build_model(
    model: ModelRecipe, *, class_names: Sequence[str], frames: int, size: int
) -> tuple[nn.Module, LoadedWeights | None]:
    """Build a model with its selectors and its starting weights; tell what was loaded into it."""
    with blaming("model.name, data.frames, data.size"):
        built = create_model(model.name, num_classes=len(class_names), frames=frames, size=size)
    with blaming("model.plan, model.method, model.scorer"):
        plan = Budgets.of(model.budgets).whole if model.plan == ANY else model.plan
        insert_selectors(
            built, plan, method=model.method, scorer=model.scorer, tokenwise=model.tokenwise
        )
    if model.weights is None:
        return built, None
    with blaming("model.weights"):
        file = find_weights(model.name, model.weights)
        return built, load_weights(built, file, class_names=class_names)


def can_be_taught(model: ModelRecipe, loaded: LoadedWeights | None) -> bool:
    """Tell whether a run begins from a dense model of its task, which can teach its selectors."""
    if model.scorer != "taught" or model.plan == "dense" or not has_scorer(model.method):
        return False
    if loaded is None or any(name.startswith(HEAD) for name in loaded.initial):
        logger.warning(
            "the selectors start untaught, as uniform selection, and may stay close to it: "
            "model.weights is not a dense model of these classes. First train one with "
            "--model.plan dense, then start from it with --model.weights"
        )
        return False
    return any(name.startswith(SELECTORS) for name in loaded.initial)


def recipe_of(model: nn.Module) -> Recipe:
    """Give the recipe that a loaded model was trained by."""
    metadata = info_of(model).metadata
    if "recipe" not in metadata:
        raise ValueError("the model was not written by `tokenselect train`: it holds no recipe")
    return recipe_from_dict(metadata["recipe"])


@dataclass(frozen=True)
class RunChanges:
    """What a caller changes of a run that no recipe can say."""

    model: Callable[[nn.Module], object]  # changes it in place, after its weights are loaded
    clips: Callable[[ClipSet], ClipSet]  # gives those to train and validate on


def build_learner(
    recipe: Recipe,
    processes: Processes,
    model: nn.Module,
    *,
    num_classes: int,
    steps_per_epoch: int,
    selector_factor: float = 1.0,
    probation: Probation | None = None,
) -> Learner:
    """Build what learns from a model on the device of this process."""
    schedule, augmentation, sigmas = recipe.schedule, recipe.augmentation, None
    if selectors_of(model) is not None:
        steps = schedule.epochs * steps_per_epoch
        sigmas = SigmaSchedule(total_steps=steps, start=schedule.sigma, end=schedule.sigma_end)
    if recipe.model.activation_checkpointing:  # names and hooks of the blocks stay
        for block in model.blocks:  # type: ignore[union-attr]
            block.forward = functools.partial(checkpoint, block.forward, use_reentrant=False)
    if recipe.model.compile:
        model.compile()
    model = spread(model, processes, recipe.strategy)
    return Learner(
        model=model,
        optimizer=build_optimizer(
            bare_model(model),
            weight_decay=schedule.weight_decay,
            backbone_factor=schedule.backbone_factor,
            selector_factor=selector_factor,
        ),
        precision=Precision(recipe.precision, processes.device),
        processes=processes,
        lrs=lr_schedule(schedule, steps_per_epoch),
        sigmas=sigmas,
        budgets=Budgets.of(recipe.model.budgets) if recipe.model.plan == ANY else None,
        mix=functools.partial(
            mix_clips,
            num_classes=num_classes,
            mixup=augmentation.mixup,
            cutmix=augmentation.cutmix,
            smoothing=augmentation.label_smoothing,
        ),
        clip_norm=schedule.clip_norm,
        average=WeightAverage(model, decay=schedule.ema) if schedule.ema else None,
        probation=probation,
        seed=recipe.seed,
    )


def lr_schedule(schedule: ScheduleRecipe, steps_per_epoch: int) -> LrSchedule:
    """Build the learning rate of each step."""
    return LrSchedule(
        total_steps=schedule.epochs * steps_per_epoch,
        warmup_steps=round(schedule.warmup_epochs * steps_per_epoch),
        peak=schedule.lr,
        warmup_start=schedule.warmup_lr,
        end=schedule.min_lr,
    )


def build_trainer(
    recipe: Recipe, processes: Processes, *, is_new: bool = True, changes: RunChanges | None = None
) -> Trainer:
    """Build a run, ready to resume or, if it `is_new`, to start: its selectors may be taught."""
    data, schedule, device = recipe.data, recipe.schedule, processes.device
    clips, val = build_clips(recipe, changes)
    place = {"rank": processes.rank, "processes": processes.count}
    order = EpochOrder(
        len(clips),
        batch_size=schedule.batch_size,
        seed=recipe.seed,
        parts=schedule.accumulation,
        weights=clips.even_weights() if data.balance else None,
        **place,
    )
    own = {"batch_size": order.part_size, "workers": data.workers}  # of this process
    class_names, steps = list(clips.class_names), order.batches_per_epoch
    torch.manual_seed(recipe.seed)  # the same start in every process
    start = recipe.model if is_new else replace(recipe.model, weights=None)
    model, loaded = build_model(start, class_names=class_names, frames=data.frames, size=data.size)
    model.to(device)
    few = {**own, "at_most": MOST_CLIPS, "seed": recipe.seed}
    shown, held_out = Shuffled(clips, **few), Shuffled(val, **few)
    probation = Probation(model, shown, held_out, steps * schedule.epochs, seed=recipe.seed)
    is_taught = is_new and can_be_taught(recipe.model, loaded)  # a resumed run remembers it
    if is_taught:
        probation.teach(logger.info if processes.is_main else str)
    if changes is not None:
        changes.model(model)
    shares = replace(val, dataset=ProcessShare(val.dataset, **place))
    return Trainer(
        folder=recipe.folder,
        learner=build_learner(
            recipe,
            processes,
            model,
            num_classes=len(class_names),
            steps_per_epoch=steps,
            selector_factor=schedule.taught_factor if is_taught else 1.0,
            probation=probation if is_taught or not is_new else None,
        ),
        clips=clips,
        loader=build_loader(clips, order, workers=data.workers, pin_memory=device.type == "cuda"),
        order=order,
        val_loader=shares.batches(**own, worker_init_fn=ignore_interrupts),
        epochs=schedule.epochs,
        metadata={
            "model": describe_model(model),
            "recipe": recipe.to_dict(),
            "num_classes": len(class_names),
            "class_names": class_names,
        },
        checkpoint_seconds=60 * recipe.checkpoint_minutes,
        checkpoint_steps=recipe.checkpoint_steps,
        validate_every=recipe.validate_every,
        patience=schedule.patience,
        opening=describe_run(recipe, processes, clips, num_val=len(val)),
        testing=f"tokenselect evaluate {recipe.folder} {part_to_test(data)}",
    )


def build_clips(recipe: Recipe, changes: RunChanges | None) -> tuple[ClipSet, ClipSet]:
    """Give the clips to train and to validate on, and check how many classes there are."""
    data = recipe.data
    clips = build_train_set(data, recipe.augmentation, seed=recipe.seed)
    val, names = build_test_set(data, "val", class_names=clips.class_names), clips.class_names
    if data.num_classes not in (None, len(names)):
        raise ValueError(
            f"data.num_classes is {data.num_classes}, and the training videos have {len(names)} "
            f"classes ({shorten(names)}): leave it out, or name the other classes in "
            "data.class_names"
        )
    return (clips, val) if changes is None else (changes.clips(clips), changes.clips(val))


def describe_run(
    recipe: Recipe, processes: Processes, clips: ClipSet, *, num_val: int
) -> list[str]:
    """Say what is trained, on what, where."""
    data, model = recipe.data, recipe.model
    threads = f"{torch.get_num_threads()} threads, " if processes.device.type == "cpu" else ""
    cache = f", decoded videos in {data.cache}" if data.cache else ""
    lines = [
        f"{recipe.folder}: {model.name}, plan {model.plan}, {data.frames}×{data.size}×{data.size}, "
        f"{recipe.schedule.epochs} epochs",
        f"{len(clips.class_names)} classes, {len(clips)} clips to train on, {num_val} to validate",
        f"{processes.count} × {processes.device}, {threads}{data.workers} loading processes{cache}",
    ]
    counts = clips.count_classes()
    if counts.any() and counts.max() > 3 * counts.min() and not data.balance:
        few, many = int(counts.min()), int(counts.max())
        lines.append(f"{few} to {many} clips per class: data.balance true draws all as often")
    return lines


def part_to_test(data: DataRecipe) -> str:
    """Name the part to test on: "test" where a recipe's videos have one, else "val"."""
    try:
        has_one = data.source == "videos" and bool(read_part(data, "test").samples)
    except (ValueError, OSError):
        return "val"
    return "test" if has_one else "val"
