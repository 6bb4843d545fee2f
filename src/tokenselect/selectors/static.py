"""Scores that ignore the input: what they reach is not selection."""

import torch
import torch.nn.functional as F
from torch import Tensor, nn

from tokenselect.grid import TokenGrid
from tokenselect.ops.rescale import rescale
from tokenselect.plan import THW
from tokenselect.selectors.scoring import Scoring


class StaticScoring(Scoring):
    """One learned score a position: of a frame, or of a place that all frames share.

    Trained through the same relaxation as the paper's scorer. Most of what a selector gains on data
    whose action sits in the middle of clip and picture is gained by this one, too.

    Args:
        kind: "T" for frames, "S" for places in a frame.
        thw: the grid at the site; on another one the scores are interpolated.
    """

    def __init__(self, kind: str, thw: THW) -> None:
        super().__init__()
        shape = thw[:1] if kind == "T" else thw[1:]
        self.position_scores = nn.Parameter(0.02 * torch.randn(shape))

    def score_frames(self, grid: TokenGrid, *, keep: int) -> Tensor:
        """Give every clip the same scores."""
        return rescale(self.resized(grid.thw[:1])).expand(grid.tokens.shape[0], -1)

    def score_map(self, grid: TokenGrid) -> Tensor:
        """Give every frame the same scores."""
        t, h, w = grid.thw
        scores = rescale(self.resized((h, w)).flatten()).unflatten(0, (h, w))
        return scores.expand(grid.tokens.shape[0], t, h, w)

    def resized(self, sides: tuple[int, ...]) -> Tensor:
        """Give the scores on a grid of these sides."""
        scores = self.position_scores.float()
        if tuple(scores.shape) == sides:
            return scores
        mode = "linear" if len(sides) == 1 else "bilinear"
        return F.interpolate(scores[None, None], size=sides, mode=mode)[0, 0]
