"""Exported files whose linear layers compute in 8 bits; scoring and choosing stay in float.

Only linear layers of the blocks behind the last selection are quantised: they hold most
multiply-adds. What lies before moves scores when it is rounded, a moved score changes a choice, and
one changed choice moves the logits more than all rounding does (docs/export.md has the figures).
"""

import os
import tempfile
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import torch
from torch import Tensor, nn

from tokenselect.export.export import describe_export, export_model, find_format
from tokenselect.export.formats import CLIPS, ExportedModel, OnnxModel, OpenVinoModel, ProgramModel
from tokenselect.extras import require
from tokenselect.measure.cost import be_silent
from tokenselect.plan import CHILD

LINEAR = "torch.nn.modules.linear.Linear"
INDEX_OPERATORS = ("aten.argmax.default", "aten.clamp_max.default")  # of a selector's indices
CLIPS_AT_ONCE = 8


@dataclass(frozen=True)
class Int8Report:
    """What 8 bits changed, on clips that were not calibrated on."""

    num_clips: int  # compared
    agreement: float  # share of clips with the same most likely class
    moved: float  # size of the logits' change over that of the logits
    changed_choices: float  # share of kept frames and regions that are others
    top1: float | None = None  # share of right answers of the float file; None without labels
    top1_int8: float | None = None  # of the quantised one

    def __str__(self) -> str:
        text = (
            f"8 bits change logits by {self.moved:.1%}; {self.agreement:.1%} of {self.num_clips} "
            f"clips get the same answer, {self.changed_choices:.2%} of the choices changed"
        )
        if self.top1 is not None and self.top1_int8 is not None:
            text += f"; accuracy {self.top1:.1%} before, {self.top1_int8:.1%} after"
        return text


def namespace_of(node: Any) -> str:
    """Give the modules that an ONNX node comes from."""
    return next((entry.value for entry in node.metadata_props if entry.key == "namespace"), "")


def quantise_onnx(source: Path, target: Path, clips: Tensor, *, behind_sites: bool = True) -> None:
    """Write an ONNX file of ours again with 8-bit linear layers, calibrated on clips.

    With `behind_sites`, what lies before the last selection is left alone, so that none can change.
    """
    onnx: Any = require("onnx", extra="onnx", purpose="8-bit export")
    tools: Any = require("onnxruntime.quantization", extra="onnx", purpose="8-bit export")
    kept = onnx.load(source)
    nodes = list(kept.graph.node)  # in the order that they run in
    sites = [index for index, node in enumerate(nodes) if CHILD in namespace_of(node)]
    layers = [
        node.name
        for node in nodes[max(sites, default=0) if behind_sites else 0 :]
        if node.op_type == "MatMul" and LINEAR in namespace_of(node)
        if CHILD not in namespace_of(node)
    ]
    if not layers:
        raise ValueError("no linear layer follows the last selection: nothing to quantise")

    class Reader(tools.CalibrationDataReader):
        inputs = iter([{CLIPS: clip.numpy()} for clip in clips.split(1)])

        def get_next(self) -> dict[str, Any] | None:
            return next(self.inputs, None)

    tools.quantize_static(
        str(source),
        str(target),
        Reader(),
        op_types_to_quantize=["MatMul"],
        nodes_to_quantize=layers,
        per_channel=True,
        activation_type=tools.QuantType.QUInt8,
        weight_type=tools.QuantType.QInt8,
    )
    written = onnx.load(target)
    del written.metadata_props[:]
    written.metadata_props.extend(kept.metadata_props)
    onnx.save(written, target)


def compare_int8(
    exact: Path, quantised: Path, clips: Tensor, labels: Tensor | None = None, *, limit: float
) -> Int8Report:
    """Compare a quantised ONNX file, or an IR made of it, with the float one it was made from.

    Clips and their (b,) labels are not those of the calibration. A larger share than `limit` of
    clips with another answer, or of changed choices, is refused.
    """
    names = _choices(exact)
    (logits, *choices), (logits8, *choices8) = (
        _answer(path, clips, names) for path in (exact, quantised)
    )
    answers, answers8 = logits.argmax(dim=1), logits8.argmax(dim=1)
    pairs = zip(choices, choices8, strict=True)
    changed = torch.cat([torch.zeros(0), *((a != b).flatten().float() for a, b in pairs)])
    report = Int8Report(
        num_clips=len(clips),
        agreement=float((answers == answers8).float().mean()),
        moved=float((logits - logits8).norm() / logits.norm()),
        changed_choices=float(changed.mean()) if len(changed) else 0.0,
        top1=None if labels is None else float((answers == labels).float().mean()),
        top1_int8=None if labels is None else float((answers8 == labels).float().mean()),
    )
    if max(1 - report.agreement, report.changed_choices) > limit:
        raise ValueError(f"{report}; the limit is {limit:.0%}: calibrate on more clips or raise it")
    return report


def export_int8(
    model: nn.Module,
    path: str | Path,
    file_format: str | type[ExportedModel] = "onnx",
    *,
    clips: Tensor,
    labels: Tensor | None = None,
    limit: float = 0.02,
    tell: Callable[[str], object] = be_silent,
) -> Int8Report:
    """Write a model with 8-bit linear layers; the file gets its name once it has been compared.

    Args:
        model: one of ours, with whatever selectors it has.
        file_format: "onnx" or "openvino"; both hold the same quantised graph.
        clips: real ones; half of them calibrate, the other half is compared on.
        labels: (b,) class numbers of the clips.
        limit: largest share of clips with another answer, and of changed choices.
    """
    path, kind = Path(path), find_format(file_format)
    if kind is ProgramModel:
        raise ValueError("8-bit export takes the formats onnx and openvino, got torch")
    if len(clips) < 2:
        raise ValueError(f"8-bit export needs at least 2 clips to calibrate on, got {len(clips)}")
    path.parent.mkdir(parents=True, exist_ok=True)
    with tempfile.TemporaryDirectory(dir=path.parent) as folder:
        exact, quantised = Path(folder) / "float.onnx", Path(folder) / "int8.onnx"
        export_model(model, exact, OnnxModel, tell=tell)
        tell(f"calibrating on {len(clips[::2])} clips")
        quantise_onnx(exact, quantised, clips[::2])
        finished = quantised
        if kind is OpenVinoModel:
            finished = Path(folder) / path.name
            OpenVinoModel.convert(quantised, finished, metadata=describe_export(model))
        tell(f"comparing on {len(clips[1::2])} clips")
        known = None if labels is None else labels[1::2]
        report = compare_int8(exact, finished, clips[1::2], known, limit=limit)
        for file, own in zip(kind.files(path)[::-1], kind.files(finished)[::-1], strict=True):
            os.replace(own, file)  # the named one last
    return report


def _choices(path: Path) -> list[str]:
    """Name the tensors of an ONNX file that hold the indices kept by its selectors."""
    onnx: Any = require("onnx", extra="onnx", purpose="8-bit export")
    places = ((node.output[0], namespace_of(node)) for node in onnx.load(path).graph.node)
    return [name for name, place in places if CHILD in place and place.endswith(INDEX_OPERATORS)]


def _answer(path: Path, clips: Tensor, names: list[str]) -> list[Tensor]:
    """Run a file by its own runtime: logits, then the tensors of these names."""
    batches = [part.numpy() for part in clips.split(CLIPS_AT_ONCE)]
    if path.suffix == OpenVinoModel.suffix:
        opened = OpenVinoModel(path)
        opened.model.add_outputs(names)
        compiled = opened.core.compile_model(opened.model, "CPU", opened.settings)
        parts = [list(compiled([part]).values()) for part in batches]
    else:
        onnx: Any = require("onnx", extra="onnx", purpose="8-bit export")
        runtime: Any = require("onnxruntime", extra="onnx", purpose="8-bit export")
        model, kind = onnx.load(path), onnx.TensorProto.INT64
        for name in names:
            model.graph.output.append(onnx.helper.make_tensor_value_info(name, kind, None))
        session = runtime.InferenceSession(
            model.SerializeToString(), providers=["CPUExecutionProvider"]
        )
        parts = [session.run(None, {CLIPS: part}) for part in batches]
    return [torch.cat([torch.from_numpy(p) for p in part]) for part in zip(*parts, strict=True)]
