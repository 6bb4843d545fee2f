"""A whole run: from a recipe to checkpoints and metrics in `runs/NAME/`."""

import logging
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager, nullcontext
from pathlib import Path
from typing import Any

import yaml

from tokenselect.locking import holding, write_whole
from tokenselect.threads import set_threads
from tokenselect.training.build import RunChanges, build_trainer, lr_schedule
from tokenselect.training.checkpoint import Checkpoint, find_newest, list_checkpoints
from tokenselect.training.distributed import Processes, joined_processes, wait_for_all
from tokenselect.training.loop import Trainer
from tokenselect.training.recipe import Recipe, recipe_from_dict

logger = logging.getLogger(__name__)

FIXED = (  # what the weights of a run depend on
    *("model.name", "model.plan", "model.budgets", "model.method", "model.scorer"),
    *("model.tokenwise", "data.frames", "data.size", "data.num_classes", "schedule.batch_size"),
)
FREE = (  # what no weights depend on, or only the first ones
    *("name", "runs", "device", "threads", "strategy", "validate_every", "checkpoint_minutes"),
    *("checkpoint_steps", "data.root", "data.workers", "data.cache", "model.weights"),
    *("model.compile", "model.activation_checkpointing"),
)


def train(
    recipe: Recipe, *, resume: bool = False, changes: RunChanges | None = None
) -> dict[str, float]:
    """Train a model as the recipe says; checkpoints and metrics go to `runs/NAME/`.

    To `resume` continues the run of this name from its last checkpoint, exactly. The figures are
    those of the last validation; there are none if the run was finished before.
    """
    folder = recipe.folder
    with joined_processes(recipe.device) as processes, hold_run(folder, processes):
        if list_checkpoints(folder) and not resume:
            raise FileExistsError(
                f"{folder} already holds a run: continue it with --resume, or give this "
                "one another --name"
            )
        found = find_newest(folder) if resume else None
        before = None if found is None else found.state.get("threads")
        set_threads(recipe.threads or before)  # as many as before, for the same bits
        changed = [] if found is None else check_resumed(recipe, found)
        trainer = build_trainer(recipe, processes, is_new=found is None, changes=changes)
        if found is not None:
            check_classes(found, trainer.clips.class_names)
            trainer.restore(found)
            trainer.opening += describe_resumed(trainer, found, changed)
        wait_for_all()
        if processes.is_main:  # with all overrides
            folder.mkdir(parents=True, exist_ok=True)
            text = yaml.safe_dump(recipe.to_dict(), sort_keys=False)
            write_whole(folder / "recipe.yaml", text)
        try:
            return trainer.run()
        except KeyboardInterrupt:
            logger.warning(
                "stopped at step %d of %d; continue with: tokenselect train %s --resume",
                *(trainer.step, trainer.total_steps, folder / "recipe.yaml"),
            )
            raise


@contextmanager
def hold_run(folder: Path, processes: Processes) -> Iterator[None]:
    """Keep other runs out of the folder, and name it where the disk is full.

    Of several processes of one run, the main one holds it.
    """
    with holding(folder) if processes.is_main else nullcontext():
        try:
            yield
        except OSError as error:
            if error.filename is not None or str(folder) in str(error):
                raise
            raise OSError(f"{folder} cannot be written: {error.strerror or error}") from error


def describe_resumed(trainer: Trainer, found: Checkpoint, changed: Sequence[str]) -> list[str]:
    """Say where a run goes on, and what a changed schedule does from there."""
    lines = [
        f"continues from {found.folder.name}: epoch {trainer.finished + 1} of {trainer.epochs}, "
        f"step {trainer.step} of {trainer.total_steps}"
    ]
    if trainer.finished >= trainer.epochs:
        lines = ["the run is finished; give more --schedule.epochs to continue it"]
    elif any(key.startswith("schedule.") for key in changed):
        old = recipe_from_dict(found.metadata["recipe"]).schedule
        before = lr_schedule(old, trainer.order.batches_per_epoch).at(trainer.step)
        now = trainer.learner.lrs.at(trainer.step)
        lines.append(
            "the new schedule applies from here on, as if the run had begun with it: the learning "
            f"rate of the next step is {now:.2g} (it would have been {before:.2g})"
        )
    return lines


def check_resumed(recipe: Recipe, found: Checkpoint) -> list[str]:
    """Refuse to resume with another model; name the keys that changed since the checkpoint."""
    if "recipe" not in found.metadata:
        raise ValueError(f"{found.folder} holds no recipe: it cannot be resumed")
    before = flatten(recipe_from_dict(found.metadata["recipe"]).to_dict())
    now = flatten(recipe.to_dict())
    free = (*FREE, "model.method", "model.scorer") if recipe.model.plan == "dense" else FREE
    changed = [key for key in now if now[key] != before.get(key) and key not in free]
    for key in changed:
        if key in FIXED:
            raise ValueError(
                f"{recipe.folder} began with {key} {before[key]}, but the recipe says "
                f"{now[key]}: resume it with --{key} {before[key]}, or start another run with "
                "--name"
            )
    if changed:
        listed = ", ".join(f"{key} {before.get(key)} → {now[key]}" for key in changed)
        logger.warning("changed since the run began, and used from here on: %s", listed)
    return changed


def check_classes(found: Checkpoint, class_names: Sequence[str]) -> None:
    """Refuse to resume with other classes than those of the checkpoint."""
    before = found.metadata.get("class_names", [])
    for old, new in zip(before, class_names, strict=False):
        if old != new:
            raise ValueError(f"{found.folder} knows a class {old!r} where the data have {new!r}")
    if len(before) != len(class_names):
        raise ValueError(
            f"{found.folder} knows {len(before)} classes, but the data have {len(class_names)}"
        )


def flatten(values: Mapping[str, Any], above: str = "") -> dict[str, Any]:
    """Write nested values with dotted keys: {"schedule.epochs": 5}."""
    flat: dict[str, Any] = {}
    for key, value in values.items():
        is_section, name = isinstance(value, Mapping), f"{above}{key}"
        flat |= flatten(value, f"{name}.") if is_section else {name: value}
    return flat
