"""The best possible selection where the truth is known: synthetic actions.

The clips carry the truth in a fourth channel, 1 inside the target's box in the frames that decide
the class. A hook takes it off before the backbone sees it, and selection follows it at every site,
in training and in testing. What is lost against a dense model is then the price of the plan alone.
"""

from dataclasses import replace
from typing import Any, cast

import torch
import torch.nn.functional as F
from torch import Tensor, nn

from tokenselect.data.synthetic import SyntheticActions
from tokenselect.grid import TokenGrid
from tokenselect.insertion import selectors_of
from tokenselect.ops.anchors import Pair, average_anchors, corners_of
from tokenselect.ops.pick import pick_rows, region_patches
from tokenselect.ops.topk_hard import hard_topk
from tokenselect.selectors import Selector
from tokenselect.selectors.scoring import Scoring
from tokenselect.training.build import RunChanges
from tokenselect.training.data import ClipSet


class GuidedClips(SyntheticActions):
    """Synthetic actions, the same as `made`, with their truth as a fourth channel."""

    def __init__(self, made: SyntheticActions) -> None:
        vars(self).update(vars(made))

    def __getitem__(self, index: int) -> tuple[Tensor, int]:
        """Return the (4, t, h, w) clip and its label."""
        clip, label = super().__getitem__(index)
        truth = self.truth(index)
        mask = torch.zeros_like(clip[:1])  # (1, t, h, w)
        for frame in truth.frames.nonzero().flatten().tolist():
            left, top, right, bottom = truth.boxes[frame].int().tolist()
            mask[0, frame, top:bottom, left:right] = 1.0
        return torch.cat([clip, mask]), label


class Guide:
    """Forward pre-hook on the model: takes the truth off the clip and keeps it for the sites."""

    def __init__(self) -> None:
        self.mask: Tensor | None = None

    def __call__(self, model: nn.Module, arguments: tuple[Any, ...]) -> tuple[Tensor]:
        """Give the model its three channels."""
        (video,) = arguments
        if video.shape[1] != 4:
            raise ValueError(f"the oracle needs clips of 4 channels, got {tuple(video.shape)}")
        self.mask = video[:, 3].float()  # (b, t, h, w)
        return (video[:, :3],)

    def on(self, grid: TokenGrid) -> Tensor:
        """Give the truth on a grid: the largest value of each patch, (b, t, h, w)."""
        assert self.mask is not None
        return F.adaptive_max_pool3d(self.mask[:, None], grid.thw).squeeze(1)


class OracleScoring(Scoring):
    """Scores by the truth; what a site keeps of the truth is what the next site sees."""

    def __init__(self, guide: Guide) -> None:
        super().__init__()
        self.guide = guide

    def score_frames(self, grid: TokenGrid, *, keep: int) -> Tensor:
        """Put frames of the burst first, and of the others those near to it."""
        mask = self.guide.on(grid)
        informative = mask.amax(dim=(2, 3))  # (b, t)
        places = torch.arange(grid.thw[0], device=mask.device, dtype=mask.dtype)
        count = informative.sum(1, keepdim=True).clamp_min(1)
        middle = (informative * places).sum(1, keepdim=True) / count
        scores = 2 * informative - (places - middle).abs() / grid.thw[0]
        kept = pick_rows(mask.flatten(2), hard_topk(scores, keep))
        self.guide.mask = kept.unflatten(2, grid.thw[1:])
        return scores

    def score_map(self, grid: TokenGrid) -> Tensor:
        """Score patches by the truth."""
        return self.guide.on(grid)

    def score_anchors(self, grid: TokenGrid, *, side: Pair, stride: Pair) -> Tensor:
        """Score anchors by how much of the target they hold."""
        mask = self.guide.on(grid)
        scores = average_anchors(mask, side, stride)  # (b, t, g)
        t, h, w = grid.thw
        corners = corners_of(hard_topk(scores, 1).squeeze(-1), (h, w), side, stride)
        rows = region_patches(corners, (h, w), side)  # (b, t·side)
        self.guide.mask = mask.flatten(1).gather(1, rows).unflatten(1, (t, *side))
        return scores


def guide_model(model: nn.Module) -> None:
    """Make the selectors of a model follow the truth."""
    selectors = selectors_of(model)
    if selectors is None:
        raise ValueError("the oracle needs a plan that selects something, got a dense model")
    guide = Guide()
    for child in selectors.values():
        selector = cast(Selector, child)
        selector.scoring, selector.relaxation = OracleScoring(guide), None
    model.register_forward_pre_hook(guide)


def guide_clips(clips: ClipSet) -> ClipSet:
    """Give synthetic clips together with their truth."""
    made = clips.dataset
    if not isinstance(made, SyntheticActions):
        raise ValueError("method 'oracle' needs the truth, which only synthetic actions have")
    return replace(clips, dataset=GuidedClips(made))


GUIDED = RunChanges(model=guide_model, clips=guide_clips)
