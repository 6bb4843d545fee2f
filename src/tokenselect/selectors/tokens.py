"""Token-wise spatial selection, which breaks the frame's structure (the ablation of Table 6)."""

import torch

from tokenselect.grid import TokenGrid
from tokenselect.ops.pick import keep_prefix, pick_rows
from tokenselect.ops.topk_hard import hard_topk
from tokenselect.selectors.selector import Selector


class TokenSelector(Selector):
    """Keeps the best patches of each frame wherever they are, laid out anew as a smaller frame.

    As many stay as in a region of the same site, so the two cost the same.
    """

    def forward(self, grid: TokenGrid) -> TokenGrid:
        """Drop all but the best patches of each frame."""
        t, h, w = grid.thw
        side = self.site.region_side(h, w)
        keep = side[0] * side[1]
        scores = self.scoring.score_patches(grid, keep=keep)  # (b, t, n)
        indices = hard_topk(scores, keep)  # (b, t, k)
        self.record(grid, scores, indices)
        if side == (h, w):
            return grid
        indicator = self.relax(scores, keep)  # (b, t, k, n)
        if indicator is not None:
            patches = grid.patches.flatten(2, 3)  # (b, t, n, c)
            blended = torch.matmul(indicator.to(patches.dtype), patches)
            return grid.with_patches(blended.unflatten(2, side))
        starts = torch.arange(t, device=indices.device)[:, None] * (h * w)
        rows = keep_prefix((indices + starts).flatten(1), grid.num_prefix)
        return grid.with_tokens(pick_rows(grid.tokens, rows), (t, *side))
