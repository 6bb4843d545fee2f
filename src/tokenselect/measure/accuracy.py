"""Accuracy: views averaged, answers counted, counts added over batches and processes."""

import time
from collections.abc import Callable, Iterable
from contextlib import AbstractContextManager, nullcontext
from dataclasses import dataclass

import torch
from torch import Tensor, nn

Runner = Callable[[Tensor], Tensor]  # maps clips to logits: a model, or its file in a runtime


@torch.no_grad()
def score_views(model: Runner, video: Tensor, *, views_at_once: int | None = None) -> Tensor:
    """Average the class probabilities of all views of each video, after the softmax.

    Args:
        model: maps (b, 3, t, h, w) clips to (b, classes) logits; in evaluation mode.
        video: (b, v, 3, t, h, w) views, or (b, 3, t, h, w) where each video has one.
        views_at_once: clips of one forward pass, to save memory; None runs all together.

    Returns:
        (b, classes) probabilities.
    """
    if video.ndim == 5:
        video = video[:, None]
    clips = video.flatten(0, 1)  # (b·v, 3, t, h, w)
    parts = clips.split(views_at_once or len(clips))
    probabilities = torch.cat([model(part).float().softmax(dim=1) for part in parts])
    return probabilities.unflatten(0, video.shape[:2]).mean(dim=1)


@dataclass(frozen=True)
class Accuracy:
    """How often a model is right."""

    top1: float  # share of videos whose most likely class is the label
    top5: float  # share of videos whose label is among the five most likely classes
    mean_class: float  # mean over classes of their share of right videos
    per_class: Tensor  # (classes,) that share; NaN for a class without a video
    confusion: Tensor  # (classes, classes) counts, label by row, most likely class by column
    num_videos: int  # all that were counted


class AccuracyCounter:
    """Counts right and wrong answers.

    Attributes:
        counts: (classes, classes + 1): the confusion, and in the last column how many videos of a
            class had it among the five most likely. One tensor, so that processes can add it up.
    """

    def __init__(self, num_classes: int, device: torch.device | str = "cpu") -> None:
        self.counts = torch.zeros(num_classes, num_classes + 1, dtype=torch.int64, device=device)

    def add(self, scores: Tensor, labels: Tensor) -> None:
        """Count (b, classes) scores; videos whose (b,) label is negative are left out."""
        scores, labels = scores[labels >= 0], labels[labels >= 0]
        num_classes = self.counts.shape[0]
        best = scores.topk(min(5, num_classes), dim=1).indices  # (b, 5)
        is_among = (best == labels[:, None]).any(dim=1)
        ones = torch.ones_like(labels)
        self.counts.index_put_((labels, best[:, 0]), ones, accumulate=True)
        self.counts[:, -1].index_put_((labels,), is_among.long(), accumulate=True)

    def result(self) -> Accuracy:
        """Turn the counts into shares."""
        counts = self.counts.cpu()
        confusion, among = counts[:, :-1], int(counts[:, -1].sum())
        videos = confusion.sum(dim=1)
        total = int(videos.sum())
        if total == 0:
            raise ValueError("no labelled video was counted")
        per_class = confusion.diagonal() / videos  # NaN where there is none
        return Accuracy(
            top1=int(confusion.diagonal().sum()) / total,
            top5=among / total,
            mean_class=float(per_class.nanmean()),
            per_class=per_class,
            confusion=confusion,
            num_videos=total,
        )


@torch.no_grad()
def count_answers(
    model: nn.Module,
    batches: Iterable[tuple[Tensor, Tensor]],
    *,
    num_classes: int,
    device: torch.device | str = "cpu",
    autocast: Callable[[], AbstractContextManager[object]] = nullcontext,
    run: Runner | None = None,
    on_batch: Callable[[Tensor, Tensor], object] | None = None,
) -> tuple[AccuracyCounter, float]:
    """Let a model answer for all videos, and count.

    Args:
        model: its mode is evaluation during this, and what it was before afterwards.
        batches: (video, labels) pairs as in `score_views`; a negative label is left out.
        autocast: makes the context of the forward passes.
        run: maps clips to logits in the model's place: its file in another runtime.
        on_batch: given each batch's (b, classes) probabilities and (b,) labels.

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
                scores = score_views(run or model, video)
            counter.add(scores, labels)
            seconds += time.perf_counter() - start
            if on_batch is not None:
                on_batch(scores, labels)
    finally:
        model.train(was_training)
    return counter, seconds
