"""An exported model is compared with the one it was made from before it counts as done."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import cast

import torch
from torch import Tensor, nn

BATCHES = (1, 3)  # both unlike the batch of 2 that was traced


@dataclass(frozen=True)
class Difference:
    """How far two models' logits are apart.

    Attributes:
        largest: of all logits.
        num_clips: compared.
    """

    largest: float
    num_clips: int


@torch.no_grad()
def compare_answers(
    model: nn.Module,
    exported: Callable[[Tensor], Tensor],
    clips: Tensor | None = None,
    *,
    tolerance: float = 1e-3,
) -> Difference:
    """Compare the logits on random clips in batches of 1 and 3, and on given ones.

    Args:
        model: the original; in evaluation mode during this.
        exported: what was made of it.
        clips: (b, 3, frames, height, width) real ones, compared too.
        tolerance: a larger difference is an error.
    """
    shape = cast(tuple[int, int, int], model.default_input)
    generator = torch.Generator().manual_seed(0)
    batches = [torch.randn(b, 3, *shape, generator=generator) for b in BATCHES]
    batches += [] if clips is None else list(clips.split(max(BATCHES)))
    device = next(model.parameters()).device
    was_training = model.training
    model.eval()
    try:
        apart = [_apart(model(b.to(device)).cpu(), exported(b.to(device)).cpu()) for b in batches]
    finally:
        model.train(was_training)
    difference = Difference(max(apart), sum(len(batch) for batch in batches))
    if not difference.largest <= tolerance:
        raise ValueError(
            f"the exported model's logits differ from the model's by {difference.largest:.2g} on "
            f"{difference.num_clips} clips, which is more than {tolerance:g}"
        )
    return difference


def _apart(ours: Tensor, theirs: Tensor) -> float:
    if ours.shape != theirs.shape:
        raise ValueError(f"logits must be {tuple(ours.shape)}, got {tuple(theirs.shape)}")
    return (ours - theirs).abs().max().item()
