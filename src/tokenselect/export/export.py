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

from tokenselect.export.check import Difference, compare_answers
from tokenselect.export.onnx_file import OnnxModel, write_onnx
from tokenselect.export.program import ProgramModel, export_program, write_program
from tokenselect.profiling import measure_latency


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
) -> dict[str, float]:
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
