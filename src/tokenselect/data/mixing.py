"""Mixup, cutmix and label smoothing on batches: two clips in one, with soft targets."""

from __future__ import annotations

import math

import torch.nn.functional as F
from torch import Generator, Tensor

from tokenselect.data.draws import draw_beta, draw_integer, happens


def smooth_targets(labels: Tensor, *, num_classes: int, smoothing: float = 0.1) -> Tensor:
    """Return (b, num_classes) targets: 1 − smoothing on the label, the rest spread over all."""
    if not 0 <= smoothing < 1:
        raise ValueError(f"smoothing must be in [0, 1), got {smoothing}")
    return F.one_hot(labels, num_classes).float() * (1 - smoothing) + smoothing / num_classes


def mix_clips(
    video: Tensor,
    labels: Tensor,
    *,
    num_classes: int,
    generator: Generator,
    mixup: float = 0.8,
    cutmix: float = 1.0,
    smoothing: float = 0.1,
) -> tuple[Tensor, Tensor]:
    """Mix each clip with that of the other end of the batch, by mixup or by cutmix.

    Both happen equally often where both are asked for. One share and one box hold for a batch,
    and a box is cut from all frames.

    Args:
        video: (b, 3, t, h, w) float.
        labels: (b,) class numbers.
        mixup: alpha of Beta(alpha, alpha), from which the share is drawn; 0 turns it off.
        cutmix: likewise.

    Returns:
        (b, 3, t, h, w) clips and (b, num_classes) targets that sum to 1.
    """
    targets = smooth_targets(labels, num_classes=num_classes, smoothing=smoothing)
    if mixup <= 0 and cutmix <= 0:
        return video, targets
    uses_cutmix = mixup <= 0 or (cutmix > 0 and happens(0.5, generator=generator))
    share = draw_beta(cutmix if uses_cutmix else mixup, generator=generator)
    if uses_cutmix:
        video, share = paste_box(video, share, generator=generator)
    else:
        video = share * video + (1 - share) * video.flip(0)
    return video, share * targets + (1 - share) * targets.flip(0)


def paste_box(video: Tensor, share: float, *, generator: Generator) -> tuple[Tensor, float]:
    """Paste a box of the other clip; return the clips and the share that stays truly theirs."""
    height, width = video.shape[-2:]
    side = math.sqrt(1 - share)
    half_h, half_w = int(height * side) // 2, int(width * side) // 2
    row = draw_integer(0, height, generator=generator)
    column = draw_integer(0, width, generator=generator)
    rows = slice(max(0, row - half_h), min(height, row + half_h))
    columns = slice(max(0, column - half_w), min(width, column + half_w))
    mixed = video.clone()
    mixed[..., rows, columns] = video.flip(0)[..., rows, columns]
    area = (rows.stop - rows.start) * (columns.stop - columns.start)
    return mixed, 1 - area / (height * width)
