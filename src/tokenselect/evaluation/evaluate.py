"""Testing a model on a data set."""

from __future__ import annotations

import time
from collections.abc import Callable, Iterable
from contextlib import AbstractContextManager, nullcontext

import torch
from torch import Tensor, nn

from tokenselect.evaluation.accuracy import AccuracyCounter
from tokenselect.evaluation.views import score_views


@torch.no_grad()
def count_answers(
    model: nn.Module,
    batches: Iterable[tuple[Tensor, Tensor]],
    *,
    num_classes: int,
    device: torch.device | str = "cpu",
    autocast: Callable[[], AbstractContextManager[object]] = nullcontext,
    views_at_once: int | None = None,
    on_batch: Callable[[int], object] | None = None,
) -> tuple[AccuracyCounter, float]:
    """Let a model answer for all videos, and count.

    Args:
        model: its mode is evaluation during this, and what it was before afterwards.
        batches: (video, labels) pairs as in `score_views`; a negative label is left out.
        num_classes: outputs of the model.
        device: of the model.
        autocast: makes the context of the forward passes.
        views_at_once: clips of one forward pass.
        on_batch: told the number of videos after each batch, for progress.

    Returns:
        The counts, and the seconds that the model took for them (without the data's).
    """
    counter, seconds = AccuracyCounter(num_classes, device), 0.0
    was_training = model.training
    model.eval()
    try:
        for video, labels in batches:
            video, labels = video.to(device), labels.to(device)
            start = time.perf_counter()
            with autocast():
                scores = score_views(model, video, views_at_once=views_at_once)
            counter.add(scores, labels)
            seconds += time.perf_counter() - start
            if on_batch is not None:
                on_batch(len(labels))
    finally:
        model.train(was_training)
    return counter, seconds
