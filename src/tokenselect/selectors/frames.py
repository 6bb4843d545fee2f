"""Frame selection: keep the k highest-scoring frames of a clip (paper, section 3.3)."""

from dataclasses import replace

import torch
from torch import Tensor

from tokenselect.grid import TokenGrid
from tokenselect.ops.pick import frame_patches, keep_prefix, pick_rows
from tokenselect.ops.topk_hard import hard_topk
from tokenselect.selectors.selector import Selector


class FrameSelector(Selector):
    """Keeps whole frames, in their order."""

    def forward(self, grid: TokenGrid) -> TokenGrid:
        """Drop all but the best frames."""
        t, h, w = grid.thw
        keep = self.site.frames_kept(t)
        scores = self.scoring.score_frames(grid, keep=keep)  # (b, t)
        indices = hard_topk(scores, keep)  # (b, k)
        self.record(grid, scores, indices)
        if keep == t:
            return grid
        patches = frame_patches(indices, h * w)  # (b, k·n)
        indicator = self.relax(scores, keep)  # (b, k, t)
        if indicator is not None:
            blended = grid.with_patches(blend_frames(grid.patches, indicator))
            return blended.placed_by(grid, patches)
        rows = keep_prefix(patches, grid.num_prefix)
        kept = grid.with_tokens(pick_rows(grid.tokens, rows), (keep, h, w))
        kept = kept.placed_by(grid, patches)
        if grid.class_attention is None:
            return kept
        attention = pick_rows(grid.class_attention.flatten(2), indices).unflatten(2, (h, w))
        return replace(kept, class_attention=attention)  # a region may be chosen by it next


def blend_frames(patches: Tensor, indicator: Tensor) -> Tensor:
    """Mix frames by a soft indicator.

    Args:
        patches: (b, t, h, w, c).
        indicator: (b, k, t).

    Returns:
        (b, k, h, w, c).
    """
    frames = patches.flatten(2)  # (b, t, h·w·c)
    return torch.matmul(indicator.to(frames.dtype), frames).unflatten(2, patches.shape[2:])
