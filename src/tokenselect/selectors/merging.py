"""Merging instead of dropping (as in ToMe): further baselines, without weights of their own."""

import torch
from torch import Tensor

from tokenselect.grid import TokenGrid
from tokenselect.ops.merge import group_frames, merge_tokens
from tokenselect.ops.pick import frame_patches
from tokenselect.plan import Site
from tokenselect.selectors.scoring import Scoring
from tokenselect.selectors.selector import Selector, blend_frames


class FrameMerger(Selector):
    """Joins the most alike neighbouring frames until as many runs are left as the site keeps.

    Each run becomes the mean of its frames, so the grid stays a grid: this is how merging goes into
    backbones that pool or cut windows. What is recorded as kept is the middle frame of each run.
    """

    def __init__(self, site: Site) -> None:
        super().__init__(site, scoring=Scoring())

    def forward(self, grid: TokenGrid) -> TokenGrid:
        """Merge frames."""
        t, h, w = grid.thw
        keep = self.site.frames_kept(t)
        shares = group_frames(grid.patches.flatten(2), keep)  # (b, k, t)
        indices = middle_frames(shares)  # (b, k)
        self.record(grid, shares.amax(dim=1).float(), indices)
        if keep == t:
            return grid
        merged = grid.with_frames(blend_frames(grid.frames, shares))
        return merged.placed_by(grid, frame_patches(indices, h * w))


class TokenMerger(Selector):
    """Merges tokens of the whole clip, for backbones that take any sequence of tokens.

    As many are left as a region of the same site would keep, so the two cost the same. The
    published method also weighs attention by how many tokens each one stands for; here the
    backbone is left as it is. That number is recorded as the score, 0 for a token that joined
    another.
    """

    def __init__(self, site: Site) -> None:
        super().__init__(site, scoring=Scoring())

    def forward(self, grid: TokenGrid) -> TokenGrid:
        """Merge tokens."""
        t, h, w = grid.thw
        side = self.site.region_side(h, w)
        patches = grid.patches.flatten(1, 3)  # (b, t·n, c)
        merged, sizes, places = merge_tokens(patches, t * side[0] * side[1])
        scores = patches.new_zeros(patches.shape[:2]).scatter(1, places, sizes)
        self.record(grid, scores, places)
        if side == (h, w):
            return grid
        smaller = grid.with_patches(merged.unflatten(1, (t, *side)))
        return smaller.placed_by(grid, places)


def middle_frames(shares: Tensor) -> Tensor:
    """Give the frame in the middle of each run: (b, k, t) shares to (b, k) indices."""
    places = torch.arange(shares.shape[2], device=shares.device, dtype=shares.dtype)
    return (shares @ places).floor().long()
