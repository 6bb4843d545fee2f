"""From a model to a checked file, and how fast that file is."""

import os
import shutil
import tempfile
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import Any

import torch
from torch import Tensor, nn

from tokenselect.checkpoints import info_of, method_of, plan_of
from tokenselect.data.clips import ClipRule
from tokenselect.export import formats
from tokenselect.export.formats import FORMATS, ExportedModel
from tokenselect.measure.cost import Timing, be_silent, measure_latency

BATCHES = (1, 3)  # both unlike the batch of 2 that was traced


@dataclass(frozen=True)
class LogitDifference:
    """How far two models' logits are apart."""

    largest: float  # of all logits
    num_clips: int  # compared


@torch.no_grad()
def compare_logits(
    model: nn.Module,
    exported: Callable[[Tensor], Any],
    clips: Tensor | None = None,
    *,
    input_shape: tuple[int, ...] | None = None,
    tolerance: float = 1e-3,
) -> LogitDifference:
    """Compare the logits on random clips in batches of 1 and 3, and on real ones, batch first.

    `input_shape`, batch first, is that of the random ones; None for the model's own. A difference
    above `tolerance` is an error.
    """
    runner, shape = formats.what_runs(model, input_shape)
    generator = torch.Generator().manual_seed(0)
    shapes = [(b, *shape[1:]) for b in BATCHES] if len(shape) == 5 else [shape]
    batches = [torch.randn(shape, generator=generator) for shape in shapes]
    batches += [] if clips is None else list(clips.split(max(BATCHES)))
    device, was_training = next(model.parameters()).device, model.training
    runner.eval()
    try:
        apart = [_difference(runner(b.to(device)), exported(b.to(device))) for b in batches]
    finally:
        model.train(was_training)
    difference = LogitDifference(max(apart), sum(len(batch) for batch in batches))
    if not difference.largest <= tolerance:
        raise ValueError(
            f"the exported model's logits differ from the model's by {difference.largest:.2g} on "
            f"{difference.num_clips} clips, which is more than {tolerance:g}"
        )
    return difference


def _difference(ours: Any, theirs: Any) -> float:
    """Give the largest difference between two answers, each a tensor or a tuple of them."""
    pairs = [(ours, theirs)] if isinstance(ours, Tensor) else zip(ours, theirs, strict=True)
    apart = []
    for own, other in pairs:
        if own.shape != other.shape:
            raise ValueError(f"logits must be {tuple(own.shape)}, got {tuple(other.shape)}")
        apart.append((own.cpu() - other.cpu()).abs().max().item())
    return max(apart)


def describe_clips(rule: ClipRule) -> dict[str, Any]:
    """Say how a video becomes the model's input: as values, and as steps for a reader."""
    (mean, std), (height, width) = rule.stats, rule.size
    steps = [
        f"take the middle frame of each of {rule.frames} equal parts of the video"
        if rule.stride is None
        else f"take {rule.frames} frames, {rule.stride} apart, from the middle of the video; of a "
        "shorter video, frames spread evenly from its first to its last",
        f"resize to the smallest picture that covers {height} × {width}, bilinear with antialiasing"
        if rule.short_side is None
        else f"resize the shorter side to {rule.short_side}, bilinear with antialiasing",
        f"crop {height} × {width} from the centre",
        "divide RGB by 255, subtract mean, divide by std",
        *(["subtract the average frame of the clip"] if rule.center else []),
        f"lay out as (batch, 3, {rule.frames}, {height}, {width})",
    ]
    return {
        "frames": rule.frames,
        "stride": rule.stride,
        "short_side": rule.short_side,
        "size": [height, width],
        "mean": list(mean),
        "std": list(std),
        "center": rule.center,
        "steps": steps,
    }


def describe_export(model: nn.Module) -> dict[str, Any]:
    """Give what users of an exported file must know; nothing for a model of another library."""
    if getattr(model, "settings", None) is None:
        return {}
    info = info_of(model)
    return {
        "model": info.name,
        "plan": str(plan_of(model)),
        "method": method_of(model),
        "class_names": info.class_names,
        "clip_rule": describe_clips(info.clip_rule),
    }


def find_format(file_format: str | type[ExportedModel]) -> type[ExportedModel]:
    """Look a format up by its name."""
    if not isinstance(file_format, str):
        return file_format
    if file_format not in FORMATS:
        raise ValueError(f"format must be one of {', '.join(FORMATS)}, got {file_format!r}")
    return FORMATS[file_format]


def export_model(
    model: nn.Module,
    path: str | Path,
    file_format: str | type[ExportedModel] = "onnx",
    *,
    input_shape: tuple[int, ...] | None = None,
    clips: Tensor | None = None,
    tolerance: float = 1e-3,
    metadata: Mapping[str, Any] | None = None,
    tell: Callable[[str], object] = be_silent,
) -> LogitDifference:
    """Write a model to a file, which gets its name once its answers have been compared with it.

    Args:
        model: of ours or of a supported library, with whatever selectors it has.
        file_format: a name from `FORMATS`, or one of its values.
        input_shape: of the model's input, batch first, such as (1, 3, 16, 224, 224); the file takes
            any batch. Only models of `create_model` know their own. Of a video-language model with
            selectors, the frames, rows and columns of patches of the one video that its vision
            tower, which is what goes into the file, will take.
        clips: real ones to compare the answers on, beside random ones.
        tolerance: largest difference of logits.
        metadata: kept in the file, as JSON; None for what is known about the model: its name, plan,
            class names and clip rule.
    """
    path, chosen = Path(path), find_format(file_format)
    tell("tracing the model")
    traced = (
        model if chosen is formats.ProgramModel else formats.fold_norms(model)
    )  # torch has fused norms
    program = formats.export_program(traced, input_shape=input_shape)
    path.parent.mkdir(parents=True, exist_ok=True)
    unfinished = path.with_name(f".{os.getpid()}.{path.name}")
    unfinished.mkdir()
    try:
        tell(f"writing {path.name}")
        known = describe_export(model) if metadata is None else metadata
        try:
            chosen.write(program, unfinished / path.name, metadata=known)
        except OSError as error:
            raise OSError(f"{path} could not be written: {error.strerror or error}") from error
        tell("comparing its logits with the model's")
        exported = chosen(unfinished / path.name)
        difference = compare_logits(
            model, exported, clips, input_shape=input_shape, tolerance=tolerance
        )
        for file in reversed(chosen.files(path)):  # the named one last
            os.replace(unfinished / file.name, file)
    finally:
        shutil.rmtree(unfinished)
    return difference


def time_exported(
    path: Path,
    dense: nn.Module,
    file_format: str | type[ExportedModel],
    *,
    repeats: int,
    tell: Callable[[str], object] = be_silent,
) -> dict[str, Timing]:
    """Time one clip through a file ("selected") and one of the dense model in turns, in seconds."""
    chosen = find_format(file_format)
    with tempfile.TemporaryDirectory() as folder:
        other = Path(folder) / f"dense{chosen.suffix}"
        tell("tracing the dense model to compare the speed")
        chosen.write(formats.export_program(dense), other, metadata={})
        models = {"selected": chosen(path), "dense": chosen(other)}
        clip = torch.randn(formats.what_runs(dense, None)[1])
        tell("timing")
        tasks = {name: partial(model, clip) for name, model in models.items()}
        return measure_latency(tasks, repeats=repeats)
