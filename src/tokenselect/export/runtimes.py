"""A model run by what is fastest here: by torch, or as an exported file by another runtime."""

import hashlib
import json
import os
from collections.abc import Callable
from functools import partial
from pathlib import Path

import torch
from torch import nn

from tokenselect.checkpoints import info_of, method_of, plan_of, weights_digest
from tokenselect.export.export import export_model
from tokenselect.export.formats import ExportedModel, OnnxModel, OpenVinoModel
from tokenselect.extras import MissingExtraError
from tokenselect.measure.accuracy import Runner
from tokenselect.measure.cost import Timing, be_silent, measure_latency

FILES: dict[str, type[ExportedModel]] = {"onnxruntime": OnnxModel, "openvino": OpenVinoModel}
RUNTIMES = ("torch", *FILES, "auto")
FILES_VERSION = 2  # of the files; a larger number leaves older ones alone
TOLERANCE = 1e-4  # of logits, between a runtime and torch


def cache_folder() -> Path:
    """Give the folder of the files that runtimes open; it may be deleted at any time."""
    base = os.environ.get("XDG_CACHE_HOME") or Path.home() / ".cache"
    return Path(base) / "tokenselect" / "runtimes"


def cached_file(model: nn.Module, kind: type[ExportedModel]) -> Path:
    """Name the file of a model: another one for other weights, another plan or input."""
    info, plan = info_of(model), str(plan_of(model))
    shape, version = info.clip_rule.shape, torch.__version__
    made_of = (weights_digest(model), plan, method_of(model), shape, FILES_VERSION, version)
    key = hashlib.blake2b(json.dumps(made_of).encode(), digest_size=8).hexdigest()
    return cache_folder() / f"{info.name}-{plan}-{key}{kind.suffix}"


def open_runtime(
    model: nn.Module, runtime: str = "torch", *, tell: Callable[[str], object] = be_silent
) -> Runner:
    """Give what maps clips to logits: the model itself, or its file in another runtime.

    The file is made, and compared with the model, when it is first wanted; then it is kept. The
    model is one of ours, in evaluation mode, on the CPU if torch does not run it.
    """
    if runtime == "torch":
        return model
    if runtime not in FILES:
        raise ValueError(f"runtime must be one of {', '.join(RUNTIMES)}, got {runtime!r}")
    path = cached_file(model, kind := FILES[runtime])
    if not all(file.exists() for file in kind.files(path)):
        export_model(model, path, kind, tolerance=TOLERANCE, tell=tell)
    return kind(path, threads=torch.get_num_threads())  # type: ignore[call-arg]


@torch.inference_mode()
def time_runtimes(
    model: nn.Module, *, batch: int = 1, repeats: int = 5, tell: Callable[[str], object] = be_silent
) -> dict[str, Timing]:
    """Time every runtime that is installed, in turns: seconds by name, the fastest first.

    `tell` is told what takes time, and why a runtime is left out.
    """
    runners: dict[str, Runner] = {"torch": model}
    for name in FILES:
        try:
            runners[name] = open_runtime(model, name, tell=tell)
        except (MissingExtraError, ValueError) as error:
            tell(f"without {name}: {error}")
    clips = torch.randn(batch, *info_of(model).clip_rule.shape[1:])
    tell(f"timing {', '.join(runners)} in turns")
    tasks = {name: partial(runner, clips) for name, runner in runners.items()}
    seconds = measure_latency(tasks, repeats=repeats)
    return dict(sorted(seconds.items(), key=lambda pair: pair[1]))
