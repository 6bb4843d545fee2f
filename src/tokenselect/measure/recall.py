"""What a model's selectors keep of the truth of synthetic actions."""

from dataclasses import dataclass

import torch
from torch import Tensor, nn

from tokenselect.data.synthetic import SyntheticActions
from tokenselect.insertion import record_selections


@dataclass(frozen=True)
class TokenTruth:
    """What matters, on the grid of token frames."""

    frames: Tensor  # (b, t) bool, those that hold an informative frame
    # (b, t, 4) x0, y0, x1, y1 around what matters in them, as shares of the picture's sides; else 0
    boxes: Tensor


def tokenize_truth(
    frames: Tensor, boxes: Tensor, *, size: tuple[int, int], stride: int = 2
) -> TokenTruth:
    """Map the truth of a video's frames onto token frames, each of `stride` frames.

    Args:
        frames: (b, t·stride) bool, the informative frames.
        boxes: (b, t·stride, 4) pixels x0, y0, x1, y1 in those frames.
        size: height and width of the video.
        stride: frames of a token frame (2 in MViT and Video Swin).
    """
    shares = boxes / torch.tensor([*size[::-1], *size[::-1]], dtype=boxes.dtype)
    grouped_frames = frames.unflatten(1, (-1, stride))  # (b, t, stride)
    grouped = shares.unflatten(1, (-1, stride))  # (b, t, stride, 4)
    is_blank = ~grouped_frames[..., None]
    low = grouped[..., :2].masked_fill(is_blank, float("inf")).amin(dim=2)
    high = grouped[..., 2:].masked_fill(is_blank, float("-inf")).amax(dim=2)
    informative = grouped_frames.any(dim=2)
    union = torch.cat([low, high], dim=2).masked_fill(~informative[..., None], 0.0)
    return TokenTruth(informative, union)


def frame_recall(kept: Tensor, truth: TokenTruth) -> Tensor:
    """Give the share of informative token frames among the kept ones, (b, k) indices: (b,).

    Chance is k / t.
    """
    return truth.frames.gather(1, kept).sum(dim=1) / truth.frames.sum(dim=1)


def region_coverage(
    corners: Tensor,
    truth: TokenTruth,
    *,
    region: tuple[int, int],
    grid: tuple[int, int],
    kept: Tensor | None = None,
) -> Tensor:
    """Give the share of the true boxes that the kept regions cover.

    Args:
        corners: (b, k, 2) first row and column of each frame's region.
        truth: (b, t); t = k unless `kept` is given.
        region: rows and columns of a region.
        grid: rows and columns of the frame that it was cut from.
        kept: (b, k) which token frames the k frames are, where frames were selected before.

    Returns:
        (b,) mean over the informative frames among the k; NaN for a clip that has none of them.
    """
    boxes, informative = truth.boxes, truth.frames
    if kept is not None:
        boxes = boxes.gather(1, kept[..., None].expand(-1, -1, 4))
        informative = informative.gather(1, kept)
    scale = torch.tensor([1 / grid[1], 1 / grid[0]])
    low = corners.flip(-1) * scale  # (b, k, 2) as x, y
    high = low + torch.tensor([region[1], region[0]]) * scale
    overlap = (torch.minimum(high, boxes[..., 2:]) - torch.maximum(low, boxes[..., :2])).clamp(0)
    area = (boxes[..., 2:] - boxes[..., :2]).prod(dim=-1)
    covered = overlap.prod(dim=-1) / area.where(informative, torch.ones(()))
    return (covered * informative).sum(dim=1) / informative.sum(dim=1)


@torch.no_grad()
def measure_recall(
    model: nn.Module, clips: SyntheticActions, *, batch_size: int = 32
) -> dict[str, float]:
    """Run a model with selectors, in evaluation mode, and compare what sites keep with the truth.

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
                    corners = selection.corners.cpu()
                    region, grid = selection.thw_after[1:], selection.thw_before[1:]
                    share = region_coverage(corners, truth, region=region, grid=grid, kept=kept)
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
    frames = torch.stack([truth.frames for truth in truths])
    boxes = torch.stack([truth.boxes for truth in truths])
    return tokenize_truth(frames, boxes, size=clips.size)
