"""Things that take turns, and the models that all parts build."""

from collections.abc import Callable
from functools import partial
from typing import Any

import torch
from torch import Tensor, nn

from benchmarks.torchvision_import import import_torchvision
from tokenselect import create_model
from tokenselect.backbones import mvit, video_swin
from tokenselect.profiling import measure_latency

Row = dict[str, Any]
Part = Callable[[int, torch.device], list[Row]]  # repeats and device to rows
PAIRS: dict[str, tuple[str, Callable[..., Any]]] = {  # ours: torchvision's, weights over
    "mvit_b16": ("mvit_v1_b", mvit.from_torchvision),
    "video_swin_b": ("swin3d_b", video_swin.from_torchvision),
}


def make_clips(model: nn.Module, batch: int, device: torch.device) -> Tensor:
    """Make a random batch of the model's own input size."""
    return torch.randn(batch, 3, *model.default_input, device=device)


def build(name: str, plan: str | None, device: torch.device, **settings: Any) -> nn.Module:
    """Build a model to evaluate."""
    return create_model(name, plan=plan, **settings).eval().to(device)


def build_torchvision(name: str, device: torch.device) -> nn.Module:
    """Build torchvision's model of the same architecture as ours."""
    models = import_torchvision("torchvision.models.video")
    return getattr(models, PAIRS[name][0])().eval().to(device)


def time_tasks(
    tasks: dict[str, Callable[[], object]], repeats: int, device: torch.device
) -> dict[str, float]:
    """Time tasks in turns, each to the end of its work: median seconds."""
    if device.type == "cuda":
        tasks = {name: partial(_finish, task) for name, task in tasks.items()}
    return measure_latency(tasks, repeats=repeats)


def time_forwards(models: dict[str, nn.Module], video: Tensor, repeats: int) -> dict[str, float]:
    """Time one forward of each, in turns: median seconds."""
    with torch.inference_mode():
        tasks = {name: partial(model, video) for name, model in models.items()}
        return time_tasks(tasks, repeats, video.device)


def _finish(task: Callable[[], object]) -> None:
    task()
    torch.cuda.synchronize()
