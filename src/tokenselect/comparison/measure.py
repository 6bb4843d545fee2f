"""What is measured of one model: each clip's answer, the cost, what the selection keeps."""

from __future__ import annotations

from typing import Any

import torch
from torch import nn
from torch.utils.data import DataLoader

from tokenselect.data.synthetic import SyntheticActions
from tokenselect.evaluation import score_views
from tokenselect.insertion import selectors_of
from tokenselect.profiling import count_macs
from tokenselect.selectors.merging import FrameMerger, TokenMerger
from tokenselect.training.build_data import ClipSet
from tokenselect.training.distributed import default_device
from tokenselect.training.recall import measure_recall
from tokenselect.training.recipe import DataRecipe

BATCH = 16


@torch.no_grad()
def measure_model(
    model: nn.Module, clips: ClipSet, data: DataRecipe, *, is_guided: bool = False
) -> dict[str, Any]:
    """Test a model on all clips.

    Args:
        model: in evaluation mode.
        clips: to test on, in a fixed order.
        data: shapes of the clips, and how many processes load them.
        is_guided: the clips carry the truth in a further channel.

    Returns:
        top1 and top5, `correct` (a character a clip, 1 for right), `gmacs` of a view, and on
        synthetic actions `recall` by site.
    """
    device = default_device()
    model.to(device)
    loader: DataLoader[Any] = DataLoader(
        clips.dataset, batch_size=BATCH, num_workers=data.workers, collate_fn=clips.collate
    )
    correct: list[int] = []
    among = 0
    for video, labels in loader:
        scores = score_views(model, video.to(device)).cpu()  # (b, classes)
        best = scores.topk(min(5, scores.shape[1]), dim=1).indices
        correct += (best[:, 0] == labels).int().tolist()
        among += int((best == labels[:, None]).any(dim=1).sum())
    channels = 4 if is_guided else 3
    found: dict[str, Any] = {
        "top1": sum(correct) / len(correct),
        "top5": among / len(correct),
        "correct": "".join(map(str, correct)),
        "gmacs": count_macs(model, 1, channels, data.frames, data.size, data.size).gmacs,
        "recall": {},
    }
    if isinstance(clips.dataset, SyntheticActions) and drops_tokens(model):
        found["recall"] = measure_recall(model, clips.dataset)
    return found


def drops_tokens(model: nn.Module) -> bool:
    """Tell whether a model keeps some tokens and not others; merging keeps a bit of all."""
    selectors = selectors_of(model)
    mergers = (FrameMerger, TokenMerger)
    return selectors is not None and not any(isinstance(s, mergers) for s in selectors.values())
