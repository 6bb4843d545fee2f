"""The files that models are exported to: `torch.export` programs and ONNX."""

from __future__ import annotations

import importlib
import json
import warnings
from collections.abc import Mapping
from pathlib import Path
from typing import Any, cast

import torch
from torch import Tensor, nn
from torch.export import Dim, ExportedProgram

from tokenselect.extras import require

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


CLIPS, LOGITS = "video", "logits"


def write_onnx(program: ExportedProgram, path: Path, *, metadata: Mapping[str, Any]) -> None:
    """Save a program as an ONNX file; its input is `video`, its output `logits`.

    Args:
        program: as `export_program` gives it.
        path: the file.
        metadata: kept in the file, as JSON.
    """
    require("onnxscript", extra="onnx", purpose="ONNX export")
    # with gradients, attention would be taken apart in another way
    with torch.no_grad(), warnings.catch_warnings():
        warnings.simplefilter("ignore", FutureWarning)  # of torch's own making
        converted = torch.onnx.export(
            program,
            input_names=[CLIPS],
            output_names=[LOGITS],
            dynamic_shapes=({0: "batch"},),
            dynamo=True,
            verbose=False,
        )
    assert converted is not None
    for name, value in metadata.items():
        converted.model.metadata_props[name] = json.dumps(value)
    converted.save(path)


class OnnxModel:
    """An ONNX file as a function of clips.

    Args:
        path: the file.
        threads: of onnxruntime; None for its own choice.
    """

    def __init__(self, path: Path, *, threads: int | None = None) -> None:
        require("onnxruntime", extra="onnx", purpose="an ONNX file")
        onnxruntime: Any = importlib.import_module("onnxruntime")
        options = onnxruntime.SessionOptions()
        if threads is not None:
            options.intra_op_num_threads = threads
        self.session = onnxruntime.InferenceSession(
            str(path), options, providers=onnxruntime.get_available_providers()
        )

    def __call__(self, video: Tensor) -> Tensor:
        """Map (b, 3, frames, height, width) clips to (b, num_classes) logits."""
        (logits,) = self.session.run([LOGITS], {CLIPS: video.cpu().numpy()})
        return torch.from_numpy(logits)

    @property
    def metadata(self) -> dict[str, Any]:
        """What `write_onnx` was told to keep."""
        kept = self.session.get_modelmeta().custom_metadata_map
        return {name: json.loads(text) for name, text in kept.items()}
