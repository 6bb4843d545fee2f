"""`tokenselect export`: a model as a file that runs without this package."""

from dataclasses import asdict
from pathlib import Path
from typing import Any, Literal

import torch
from rich.console import Console
from torch import Tensor, nn

from tokenselect.checkpoints import info_of, load_model, plan_of, with_plan
from tokenselect.cli.terminal import print_json, telling
from tokenselect.data.clips import ClipRule
from tokenselect.data.sources import find_videos
from tokenselect.export import FORMATS, LogitDifference, export_int8, export_model, time_exported
from tokenselect.inference.bulk import folder_class
from tokenselect.measure.cost import NOISY, Timing, are_told_apart


def export(
    checkpoint: str,
    format: Literal["onnx", "openvino", "torch"] = "onnx",
    out: str | None = None,
    weights: str | None = None,
    plan: str | None = None,
    method: str | None = None,
    videos: str | None = None,
    tolerance: float = 1e-3,
    int8: bool = False,
    calibrate: str | None = None,
    int8_limit: float = 0.02,
    repeats: int = 5,
    json: bool = False,
) -> None:
    """Write a model to a file with a fixed input size and any batch, checked against the model.

    Args:
        checkpoint: run folder or .safetensors file of a trained model, or the name of a model.
        format: onnx, openvino (an .xml file with its .bin), or torch for a program of torch.export.
        out: the file; without it, one in the working folder that is named after model and plan.
        weights: of a named model, for example kinetics400.
        plan: what to keep, for example T0_0.6-S4_0.9, in place of the checkpoint's own.
        method: how to select, in place of the checkpoint's own.
        videos: file, folder or pattern of videos to compare on, beside random clips.
        tolerance: largest difference between the file's logits and the model's.
        int8: compute the linear layers after the last selection in 8 bits.
        calibrate: file, folder or pattern of videos for int8: half of them calibrate, accuracy and
            choices are compared on the others.
        int8_limit: largest share of answers, and of choices, that int8 may change.
        repeats: timed runs of a clip with selection and without, in turns; 0 for no timing.
        json: print JSON instead of text.
    """
    if int8 != (calibrate is not None):
        raise ValueError("--int8 and --calibrate VIDEOS must be given together")
    with telling("loading the model") as tell:
        model = load_model(checkpoint, weights=weights, plan=plan, method=method)
        info, chosen = info_of(model), FORMATS[format]
        path = Path(out or f"{info.name}-{plan_of(model)}{chosen.suffix}")
        report, difference = None, LogitDifference(0.0, 0)
        if calibrate is not None:
            found, labels = read_labelled(calibrate, model)
            report = export_int8(
                model, path, chosen, clips=found, labels=labels, limit=int8_limit, tell=tell
            )
        else:
            clips = None if videos is None else read_clips(videos, info.clip_rule)
            difference = export_model(
                model, path, chosen, clips=clips, tolerance=tolerance, tell=tell
            )
        seconds: dict[str, Timing] = {}
        if repeats:
            dense = with_plan(model, "dense")
            seconds = time_exported(path, dense, chosen, repeats=repeats, tell=tell)
    done = dict(
        path=str(path),
        format=format,
        megabytes=sum(file.stat().st_size for file in chosen.files(path)) / 2**20,
        model=info.name,
        plan=str(plan_of(model)),
        input=info.clip_rule.shape[1:],
        clips_compared=difference.num_clips,
        largest_difference=difference.largest,
        int8=report,
        milliseconds=seconds["selected"].scaled(1e3) if seconds else None,
        milliseconds_dense=seconds["dense"].scaled(1e3) if seconds else None,
    )
    if json:
        return print_json({**done, "int8": None if report is None else asdict(report)})
    print_text(done)


def read_labelled(videos: str, model: nn.Module) -> tuple[Tensor, Tensor | None]:
    """Cut a clip out of each video; its folder is its label, if all folders are classes."""
    info, found = info_of(model), find_videos([videos])
    names = [video.label or folder_class(video.name, info.class_names) for video in found]
    labels = [info.label2id[name] for name in names if name in info.label2id]
    known = torch.tensor(labels) if len(labels) == len(found) else None
    return read_clips(videos, info.clip_rule), known


def read_clips(videos: str, rule: ClipRule) -> Tensor:
    """Cut one clip out of the middle of each video: (b, 3, frames, height, width)."""
    clips = []
    for video in find_videos([videos]):
        with video.open() as source:
            clips.append(rule.read_crops(source))
    return rule.normalize(torch.cat(clips))


def print_text(done: dict[str, Any]) -> None:
    """Print what was done in a few lines."""
    console = Console(highlight=False, soft_wrap=True)
    shape = "×".join(map(str, done["input"]))
    told = f"{done['path']}: {done['model']} {done['plan']}, b×{shape}"
    console.print(f"{told}, {done['megabytes']:.1f} MB")
    difference, count = done["largest_difference"], done["clips_compared"]
    near = f"logits differ from the model's by at most {difference:.1e} on {count} clips"
    console.print(str(done["int8"] or near))
    selected, dense = done["milliseconds"], done["milliseconds_dense"]
    if selected is not None and done["plan"] != "dense":
        runner = {"onnx": "ONNX Runtime", "openvino": "OpenVINO", "torch": "torch"}[done["format"]]
        is_clear = are_told_apart(selected, dense)
        faster = f"{dense / selected:.2f} × as fast" if is_clear else NOISY
        console.print(f"a clip in {runner}: {selected} ms, dense {dense} ms ({faster})")
