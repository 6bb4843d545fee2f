"""What a model's selectors keep of the truth of synthetic actions."""

from __future__ import annotations

import torch
from torch import Tensor, nn

from tokenselect.data.synthetic import SyntheticActions
from tokenselect.evaluation import TokenTruth, frame_recall, region_coverage, tokenize_truth
from tokenselect.insertion import record_selections


@torch.no_grad()
def measure_recall(
    model: nn.Module, clips: SyntheticActions, *, batch_size: int = 32
) -> dict[str, float]:
    """Run a model over clips and compare what each site keeps with what matters.

    Args:
        model: with selectors, in evaluation mode.
        clips: with their truth.
        batch_size: clips of a forward pass.

    Returns:
        Site to its mean: for frames ("T0") the share of informative token frames that are still
        there after it, for regions ("S4") the covered share of the true boxes in those frames.
    """
    device = next(model.parameters()).device
    found: dict[str, list[Tensor]] = {}
    with record_selections(model) as selections:
        for start in range(0, len(clips), batch_size):
            indices = range(start, min(start + batch_size, len(clips)))
            video = torch.stack([clips[index][0] for index in indices])
            model(video.to(device))
            kept: Tensor | None = None  # which token frames are still there
            for label, selection in selections.items():
                truth = truth_of(clips, indices)
                if selection.corners is not None:
                    share = region_coverage(
                        selection.corners.cpu(),
                        truth,
                        region=selection.thw_after[1:],
                        grid=selection.thw_before[1:],
                        kept=kept,
                    )
                elif label.startswith("T"):
                    chosen = selection.indices.cpu()
                    kept = chosen if kept is None else kept.gather(1, chosen)
                    share = frame_recall(kept, truth)
                else:
                    continue
                found.setdefault(label, []).append(share)
    return {label: float(torch.cat(shares).nanmean()) for label, shares in found.items()}


def truth_of(clips: SyntheticActions, indices: range) -> TokenTruth:
    """Give the truth of some clips on the grid of token frames."""
    truths = [clips.truth(index) for index in indices]
    return tokenize_truth(
        torch.stack([truth.frames for truth in truths]),
        torch.stack([truth.boxes for truth in truths]),
        size=clips.size,
    )
