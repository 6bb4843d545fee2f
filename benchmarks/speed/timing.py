"""Things that take turns, and the models that all parts build."""

import random
import statistics
import time
from collections.abc import Callable
from functools import partial
from typing import Any

import torch
from torch import Tensor, nn

from benchmarks.torchvision_import import import_torchvision
from tokenselect import create_model
from tokenselect.backbones import mvit, video_swin

CLOCK = [time.perf_counter]
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
    for task in tasks.values():
        task()
    shuffled = random.Random(0)
    orders = [shuffled.sample(list(tasks), len(tasks)) for _ in range(repeats)]
    return [{name: _seconds(tasks[name]) for name in order} for order in orders]


def use_processor_time() -> None:
    """Count the seconds that this process computes for, on one thread: for a busy machine."""
    torch.set_num_threads(1)
    CLOCK[0] = time.process_time


def _seconds(task: Callable[[], object]) -> float:
    start = CLOCK[0]()
    task()
    return CLOCK[0]() - start


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
