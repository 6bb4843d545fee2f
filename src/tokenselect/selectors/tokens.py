"""Token-wise selection, which breaks the frame's structure (the ablation of Table 6)."""

import torch

from tokenselect.grid import TokenGrid
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
        starts = torch.arange(t, device=indices.device)[:, None] * (h * w)
        patches = (indices + starts).flatten(1)  # (b, t·k)
        indicator = self.relax(scores, keep)  # (b, t, k, n)
        if indicator is not None:
            frames = grid.patches.flatten(2, 3)  # (b, t, n, c)
            blended = torch.matmul(indicator.to(frames.dtype), frames).unflatten(2, side)
            return grid.with_patches(blended).placed_by(grid, patches)
        return grid.pick(patches, (t, *side))


class ClipTokenSelector(Selector):
    """Keeps the best patches of the whole clip, for backbones that take any sequence of tokens.

    As many stay as in a region of the same site; a frame may lose all of its patches.
    """

    def forward(self, grid: TokenGrid) -> TokenGrid:
        """Drop all but the best patches of the clip."""
        t, h, w = grid.thw
        side = self.site.region_side(h, w)
        keep = t * side[0] * side[1]
        scores = self.scoring.score_clip(grid, keep=keep)  # (b, t·n)
        patches = hard_topk(scores, keep)  # (b, k)
        self.record(grid, scores, patches)
        return grid if side == (h, w) else grid.pick(patches, (t, *side))
