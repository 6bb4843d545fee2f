"""Checkpoints: written whole or not at all, and enough to continue exactly.

A run's folder holds `step-00000120/` folders, each with the weights (`model.safetensors`, any tool
reads it; its metadata rebuild the model) and the rest of the run's state (`training.pt`), and two
links, `last` and `best`. A folder gets its name only when all of it is on the disk, so a run that
is killed at any moment leaves a whole checkpoint behind. The newest whole one is what a run goes on
from; the links only say where it is.
"""

import json
import logging
import os
import pickle
import shutil
import sys
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import torch
from safetensors import SafetensorError
from safetensors.torch import save_file
from torch import Tensor

from tokenselect.weights import read_weights
from tokenselect.weights.files import WEIGHTS

logger = logging.getLogger(__name__)

STATE = "training.pt"
DAMAGE = (OSError, ValueError, RuntimeError, EOFError, pickle.UnpicklingError, SafetensorError)


@dataclass(frozen=True)
class Checkpoint:
    """A checkpoint that was read whole."""

    folder: Path  # where it is
    weights: dict[str, Tensor]  # of the model
    metadata: dict[str, Any]  # of the weights' file
    state: dict[str, Any]  # all else that the run needs to continue


def list_checkpoints(run: Path) -> list[Path]:
    """List the checkpoints of a run, the newest first, whole or not."""
    return sorted(run.glob("step-*"), reverse=True)


def find_newest(run: Path) -> Checkpoint | None:
    """Read the newest whole checkpoint of a run; None if it has none at all."""
    damaged: list[str] = []
    for folder in list_checkpoints(run):
        try:
            weights, metadata = read_weights(folder / WEIGHTS)
            state = torch.load(folder / STATE, weights_only=True, map_location="cpu")
        except DAMAGE as error:
            damaged.append(f"{folder.name}: {first_line(error)}")
            continue
        if damaged:
            logger.warning("%s continues from %s, because %s", run, folder.name, "; ".join(damaged))
        return Checkpoint(folder, weights, metadata, state)
    if damaged:
        raise ValueError(
            f"{run} has no intact checkpoint ({'; '.join(damaged)}): nothing in it "
            "was changed; start another run with --name"
        )
    return None


def save_checkpoint(
    run: Path,
    step: int,
    *,
    weights: Mapping[str, Tensor],
    state: Mapping[str, Any],
    metadata: Mapping[str, Any],
    best_step: int | None = None,
) -> Path:
    """Write the checkpoint of `step`, point the links, and drop older ones without a link.

    Metadata go into the weights' file, as JSON; all else that the loop needs is the `state`.
    """
    folder = run / name_of(step)
    unfinished = run / f".{folder.name}.{os.getpid()}"
    try:
        shutil.rmtree(unfinished, ignore_errors=True)
        unfinished.mkdir(parents=True)
        tensors = {name: tensor.detach().cpu().contiguous() for name, tensor in weights.items()}
        text = {name: json.dumps(value) for name, value in metadata.items()}
        save_file(tensors, unfinished / WEIGHTS, metadata=text)
        sort_metadata(unfinished / WEIGHTS)
        torch.save(plain(state), unfinished / STATE)
        for path in (unfinished / WEIGHTS, unfinished / STATE, unfinished):
            flush(path)
    except (OSError, RuntimeError, SafetensorError) as error:
        shutil.rmtree(unfinished, ignore_errors=True)
        raise OSError(
            f"the checkpoint of step {step} could not be written to {run}: {first_line(error)}; "
            "earlier ones are intact, so free some space and continue with --resume"
        ) from error
    if folder.exists():  # the same step, validated since
        os.replace(unfinished / WEIGHTS, folder / WEIGHTS)
        os.replace(unfinished / STATE, folder / STATE)
        unfinished.rmdir()
    else:
        os.replace(unfinished, folder)
    tidy_checkpoints(run, last=step, best=best_step)
    return folder


def sort_metadata(path: Path) -> None:
    """Sort the metadata of a safetensors file, whose order is random: equal runs, equal files."""
    with path.open("r+b") as file:
        length = int.from_bytes(file.read(8), "little")
        header = json.loads(file.read(length))
        header["__metadata__"] = dict(sorted(header.get("__metadata__", {}).items()))
        text = json.dumps(header, separators=(",", ":"), ensure_ascii=False).encode()
        if len(text) <= length:
            file.seek(8)
            file.write(text.ljust(length))


def plain(value: Any) -> Any:
    """Rebuild nested values so that equal states make equal files.

    What was loaded has lists for tuples, and equal texts that are not one object, which pickle
    would write twice.
    """
    if isinstance(value, Mapping):
        return {plain(key): plain(item) for key, item in value.items()}
    if isinstance(value, list | tuple):
        return [plain(item) for item in value]
    return sys.intern(value) if isinstance(value, str) else value


def first_line(error: Exception) -> str:
    """Give the first line of an error's message, or its kind if it has none."""
    return next(iter(str(error).splitlines()), type(error).__name__)


def name_of(step: int) -> str:
    """Name the folder of a step's checkpoint."""
    return f"step-{step:08d}"


def flush(path: Path) -> None:
    """Wait until the file or folder is on the disk."""
    handle = os.open(path, os.O_RDONLY)
    try:
        os.fsync(handle)
    finally:
        os.close(handle)


def tidy_checkpoints(run: Path, *, last: int, best: int | None) -> None:
    """Point `last` and `best` to the checkpoints of these steps, and remove older ones.

    What is newer than `last` stays: it could not be read, and someone may want to mend it.
    """
    for name, step in (("best", best), ("last", last)):
        if step is not None and (run / name_of(step)).is_dir():
            fresh = run / f".{name}.{os.getpid()}"
            fresh.unlink(missing_ok=True)
            fresh.symlink_to(name_of(step))
            os.replace(fresh, run / name)
    flush(run)
    kept = {name_of(step) for step in (last, best) if step is not None}
    older = [folder for folder in list_checkpoints(run) if folder.name < name_of(last)]
    for path in [*older, *run.glob(".step-*"), *run.glob(".last.*"), *run.glob(".best.*")]:
        if path.is_symlink():
            path.unlink()
        elif path.name not in kept:
            shutil.rmtree(path, ignore_errors=True)
