"""Things that take turns, and the models that all parts build."""

import random
import statistics
from collections.abc import Callable
from functools import partial
from typing import Any

import torch
from torch import Tensor, nn

from benchmarks.torchvision_import import import_torchvision
from tokenselect import create_model
from tokenselect.backbones import mvit, video_swin
from tokenselect.measure.cost import measure_latency

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


def time_rounds(
    tasks: dict[str, Callable[[], object]], repeats: int, device: torch.device
) -> list[dict[str, float]]:
    """Time tasks in turns, each to the end of its work: the seconds of every round.

    The order changes from round to round: what one leaves in cache and memory meets another.
    """
    if device.type == "cuda":
        tasks = {name: partial(_finish, task) for name, task in tasks.items()}
    measure_latency(tasks, repeats=1, warmup=0)
    shuffled = random.Random(0)
    orders = [shuffled.sample(list(tasks), len(tasks)) for _ in range(repeats)]
    return [
        measure_latency({name: tasks[name] for name in order}, repeats=1, warmup=0)
        for order in orders
    ]


def time_forwards(
    models: dict[str, nn.Module], video: Tensor, repeats: int
) -> list[dict[str, float]]:
    """Time one forward of each, in turns: the seconds of every round."""
    with torch.inference_mode():
        tasks = {name: partial(model, video) for name, model in models.items()}
        return time_rounds(tasks, repeats, video.device)


def medians(rounds: list[dict[str, float]]) -> dict[str, float]:
    """Give the median seconds of each task."""
    return {name: statistics.median(turn[name] for turn in rounds) for name in rounds[0]}


def speed_up(rounds: list[dict[str, float]], slow: str, fast: str) -> float:
    """Say how many times faster one is: the median of the rounds' ratios.

    A machine that slows down for some rounds is then fair to both.
    """
    return statistics.median(turn[slow] / turn[fast] for turn in rounds)


def _finish(task: Callable[[], object]) -> None:
    task()
    torch.cuda.synchronize()
