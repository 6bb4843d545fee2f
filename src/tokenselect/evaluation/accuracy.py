"""Accuracy from counts: they add up over batches and over processes."""

from __future__ import annotations

from dataclasses import dataclass

import torch
from torch import Tensor


@dataclass(frozen=True)
class Accuracy:
    """How often a model is right.

    Attributes:
        top1: share of videos whose most likely class is the label.
        top5: share of videos whose label is among the five most likely classes.
        mean_class: mean over classes of their share of right videos.
        per_class: (classes,) that share; NaN for a class without a video.
        confusion: (classes, classes) counts, label by row, most likely class by column.
        num_videos: all that were counted.
    """

    top1: float
    top5: float
    mean_class: float
    per_class: Tensor
    confusion: Tensor
    num_videos: int


class AccuracyCounter:
    """Counts right and wrong answers.

    Attributes:
        counts: (classes, classes + 1): the confusion, and in the last column how many videos of a
            class had it among the five most likely. One tensor, so that processes can add it up.
    """

    def __init__(self, num_classes: int, device: torch.device | str = "cpu") -> None:
        self.counts = torch.zeros(num_classes, num_classes + 1, dtype=torch.int64, device=device)

    def add(self, scores: Tensor, labels: Tensor) -> None:
        """Count a batch; videos with a negative label are left out.

        Args:
            scores: (b, classes) logits or probabilities.
            labels: (b,) class numbers.
        """
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
