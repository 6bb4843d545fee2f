"""Programs of `torch.export`: the model as one graph, for any batch size."""

from __future__ import annotations

import json
from collections.abc import Mapping
from pathlib import Path
from typing import Any, cast

import torch
from torch import Tensor, nn
from torch.export import Dim, ExportedProgram

METADATA = "tokenselect.json"
MAX_BATCH = 2**16


def export_program(model: nn.Module) -> ExportedProgram:
    """Trace a model in evaluation mode, at its own input size, for every batch size.

    Args:
        model: one with a `default_input`; its mode is restored afterwards.
    """
    device = next(model.parameters()).device
    example = torch.zeros(2, 3, *cast(tuple[int, int, int], model.default_input), device=device)
    batch = Dim("batch", min=1, max=MAX_BATCH)
    was_training = model.training
    model.eval()
    try:
        with torch.no_grad():
            return torch.export.export(model, (example,), dynamic_shapes=({0: batch},))
    finally:
        model.train(was_training)


def write_program(program: ExportedProgram, path: Path, *, metadata: Mapping[str, Any]) -> None:
    """Save a program as a `.pt2` file.

    Args:
        program: as `export_program` gives it.
        path: the file.
        metadata: kept in the file, as JSON.
    """
    torch.export.save(program, path, extra_files={METADATA: json.dumps(dict(metadata))})


class ProgramModel:
    """A `.pt2` file as a function of clips.

    Args:
        path: the file.
    """

    def __init__(self, path: Path) -> None:
        files = {METADATA: ""}
        self.module = torch.export.load(path, extra_files=files).module()
        self.metadata: dict[str, Any] = json.loads(files[METADATA] or "{}")

    @torch.no_grad()
    def __call__(self, video: Tensor) -> Tensor:
        """Map (b, 3, frames, height, width) clips to (b, num_classes) logits."""
        return self.module(video)
