"""Region selection: keep one anchor of each frame (paper, section 3.3)."""

from tokenselect.grid import TokenGrid
from tokenselect.ops.anchors import Pair, blend_anchors, corners_of, default_stride
from tokenselect.ops.pick import region_patches
from tokenselect.ops.topk_hard import hard_topk
from tokenselect.plan import Site
from tokenselect.selectors.relaxation import Relaxation
from tokenselect.selectors.scoring import Scoring
from tokenselect.selectors.selector import Selector


class RegionSelector(Selector):
    """Keeps the best-scoring rectangle of each frame, the same size in all.

    Args:
        site: how much to keep.
        scoring: what matters.
        relaxation: stands in for hard Top-1 while training.
        stride: α, rows and columns from one anchor to the next; None for `default_stride`.
    """

    def __init__(
        self,
        site: Site,
        *,
        scoring: Scoring,
        relaxation: Relaxation | None = None,
        stride: Pair | None = None,
    ) -> None:
        super().__init__(site, scoring=scoring, relaxation=relaxation)
        self.stride = stride

    def forward(self, grid: TokenGrid) -> TokenGrid:
        """Cut the best region out of each frame."""
        t, h, w = grid.thw
        side = self.site.region_side(h, w)
        stride = self.stride or default_stride((h, w), side)
        scores = self.scoring.score_anchors(grid, side=side, stride=stride)  # (b, t, g)
        indices = hard_topk(scores, 1).squeeze(-1)  # (b, t)
        corners = corners_of(indices, (h, w), side, stride)  # (b, t, 2)
        self.record(grid, scores, indices, corners=corners)
        if side == (h, w):
            return grid
        patches = region_patches(corners, (h, w), side)  # (b, t·side)
        indicator = self.relax(scores, 1)  # (b, t, 1, g)
        if indicator is not None:
            blended = blend_anchors(grid.patches, indicator.squeeze(2), side, stride)
            return grid.with_patches(blended).placed_by(grid, patches)
        return grid.pick(patches, (t, *side))
