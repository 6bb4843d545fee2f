"""Checkpoints: written whole or not at all, and enough to continue exactly.

A run's folder holds `step-00000120/` folders, each with the weights (`model.safetensors`, any tool
reads it; its metadata rebuild the model) and the optimizer's state (`training.pt`), and two links,
`last` and `best`. A folder gets its name only when all of it is on the disk, so a run that is
killed at any moment leaves a whole checkpoint behind.
"""

from __future__ import annotations

import json
import os
import shutil
from pathlib import Path
from typing import Any

import torch
from safetensors.torch import save_file
from torch import Tensor

from tokenselect.weights.files import WEIGHTS

STATE = "training.pt"
LINKS = ("last", "best")


def save_checkpoint(
    run: Path,
    step: int,
    *,
    weights: dict[str, Tensor],
    state: dict[str, Any],
    metadata: dict[str, Any],
    is_best: bool = False,
) -> Path:
    """Write the checkpoint of `step` into `run`, point `last` (and `best`) to it, drop the others.

    Args:
        run: folder of the run.
        step: optimizer steps taken.
        weights: of the model, on any device.
        state: whatever the loop needs to continue; plain values and tensors.
        metadata: goes into the weights' file, as JSON.
        is_best: whether `best` shall point here.
    """
    folder = run / f"step-{step:08d}"
    if not folder.exists():
        unfinished = run / f".{folder.name}.{os.getpid()}"
        shutil.rmtree(unfinished, ignore_errors=True)
        unfinished.mkdir(parents=True)
        tensors = {name: tensor.detach().cpu().contiguous() for name, tensor in weights.items()}
        text = {name: json.dumps(value) for name, value in metadata.items()}
        save_file(tensors, unfinished / WEIGHTS, metadata=text)
        torch.save(state, unfinished / STATE)
        for path in (unfinished / WEIGHTS, unfinished / STATE, unfinished):
            flush(path)
        os.replace(unfinished, folder)
    for link in LINKS if is_best else LINKS[:1]:
        point(run / link, folder.name)
    flush(run)
    drop_unlinked(run)
    return folder


def flush(path: Path) -> None:
    """Wait until the file or folder is on the disk."""
    handle = os.open(path, os.O_RDONLY)
    try:
        os.fsync(handle)
    finally:
        os.close(handle)


def point(link: Path, target: str) -> None:
    """Let `link` point to its neighbour `target`, at once."""
    fresh = link.with_name(f".{link.name}.{os.getpid()}")
    fresh.unlink(missing_ok=True)
    fresh.symlink_to(target)
    os.replace(fresh, link)


def drop_unlinked(run: Path) -> None:
    """Remove the checkpoints that neither `last` nor `best` points to, and unfinished ones."""
    kept = {os.readlink(run / link) for link in LINKS if (run / link).is_symlink()}
    for folder in [*run.glob("step-*"), *run.glob(".step-*")]:
        if folder.name not in kept:
            shutil.rmtree(folder, ignore_errors=True)


def load_state(run: Path) -> dict[str, Any] | None:
    """Read the state of the run's last checkpoint, or None if it has none yet."""
    path = run / "last" / STATE
    return torch.load(path, weights_only=True, map_location="cpu") if path.is_file() else None
