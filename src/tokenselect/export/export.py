"""From a model to a checked file, and how fast that file is."""

from __future__ import annotations

import os
import tempfile
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import Any, cast

import torch
from torch import Tensor, nn
from torch.export import ExportedProgram

from tokenselect.export.formats import (
    OnnxModel,
    ProgramModel,
    export_program,
    write_onnx,
    write_program,
)
from tokenselect.measure.cost import Timing, measure_latency

BATCHES = (1, 3)  # both unlike the batch of 2 that was traced


@dataclass(frozen=True)
class Difference:
    """How far two models' logits are apart.

    Attributes:
        largest: of all logits.
        num_clips: compared.
    """

    largest: float
    num_clips: int


@torch.no_grad()
def compare_answers(
    model: nn.Module,
    exported: Callable[[Tensor], Tensor],
    clips: Tensor | None = None,
    *,
    tolerance: float = 1e-3,
) -> Difference:
    """Compare the logits on random clips in batches of 1 and 3, and on given ones.

    Args:
        model: the original; in evaluation mode during this.
        exported: what was made of it.
        clips: (b, 3, frames, height, width) real ones, compared too.
        tolerance: a larger difference is an error.
    """
    shape = cast(tuple[int, int, int], model.default_input)
    generator = torch.Generator().manual_seed(0)
    batches = [torch.randn(b, 3, *shape, generator=generator) for b in BATCHES]
    batches += [] if clips is None else list(clips.split(max(BATCHES)))
    device = next(model.parameters()).device
    was_training = model.training
    model.eval()
    try:
        apart = [_apart(model(b.to(device)).cpu(), exported(b.to(device)).cpu()) for b in batches]
    finally:
        model.train(was_training)
    difference = Difference(max(apart), sum(len(batch) for batch in batches))
    if not difference.largest <= tolerance:
        raise ValueError(
            f"the exported model's logits differ from the model's by {difference.largest:.2g} on "
            f"{difference.num_clips} clips, which is more than {tolerance:g}"
        )
    return difference


def _apart(ours: Tensor, theirs: Tensor) -> float:
    if ours.shape != theirs.shape:
        raise ValueError(f"logits must be {tuple(ours.shape)}, got {tuple(theirs.shape)}")
    return (ours - theirs).abs().max().item()


@dataclass(frozen=True)
class FileFormat:
    """A kind of file.

    Attributes:
        suffix: of its files.
        write: saves a program with metadata.
        open: loads a file as a function of clips.
    """

    suffix: str
    write: Callable[..., None]
    open: Callable[[Path], Callable[[Tensor], Tensor]]


FORMATS = {
    "onnx": FileFormat(".onnx", write_onnx, OnnxModel),
    "torch": FileFormat(".pt2", write_program, ProgramModel),
}


def export_model(
    model: nn.Module,
    path: Path,
    file_format: FileFormat,
    *,
    clips: Tensor | None = None,
    tolerance: float = 1e-3,
    metadata: Mapping[str, Any] | None = None,
    tell: Callable[[str], object] = id,
) -> Difference:
    """Write a model to a file, which gets its name once its answers have been compared.

    Args:
        model: with whatever selectors it has.
        path: the file.
        file_format: one of `FORMATS`.
        clips: real ones to compare the answers on, beside random ones.
        tolerance: largest difference of logits.
        metadata: kept in the file, as JSON: class names, say.
        tell: told what takes time.

    Returns:
        How far the file's logits are from the model's.
    """
    tell("tracing the model")
    program: ExportedProgram = export_program(model)
    path.parent.mkdir(parents=True, exist_ok=True)
    unfinished = path.with_name(f".{os.getpid()}.{path.name}")
    try:
        tell(f"writing {path.name}")
        file_format.write(program, unfinished, metadata=metadata or {})
        tell("comparing its logits with the model's")
        exported = file_format.open(unfinished)
        difference = compare_answers(model, exported, clips, tolerance=tolerance)
        os.replace(unfinished, path)
    finally:
        unfinished.unlink(missing_ok=True)
    return difference


def time_exported(
    path: Path,
    dense: nn.Module,
    file_format: FileFormat,
    *,
    repeats: int,
    tell: Callable[[str], object] = id,
) -> dict[str, Timing]:
    """Time one clip through a file and through one of the dense model, in turns.

    Args:
        path: the file with selection.
        dense: the model without.
        file_format: of both.
        repeats: timed forwards of each.
        tell: told what takes time.

    Returns:
        Seconds of "selected" and "dense".
    """
    with tempfile.TemporaryDirectory() as folder:
        other = Path(folder) / f"dense{file_format.suffix}"
        tell("tracing the dense model to compare the speed")
        file_format.write(export_program(dense), other, metadata={})
        models = {"selected": file_format.open(path), "dense": file_format.open(other)}
        clip = torch.randn(1, 3, *cast(tuple[int, int, int], dense.default_input))
        tell("timing")
        tasks = {name: partial(model, clip) for name, model in models.items()}
        return measure_latency(tasks, repeats=repeats)
