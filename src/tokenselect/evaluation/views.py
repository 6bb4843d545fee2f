"""Several views of a video, one answer (paper, section 4.1: the backbones' own testing)."""

import torch
from torch import Tensor, nn


@torch.no_grad()
def score_views(model: nn.Module, video: Tensor, *, views_at_once: int | None = None) -> Tensor:
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
