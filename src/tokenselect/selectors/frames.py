"""Frame selection: keep the k highest-scoring frames of a clip (paper, section 3.3)."""

from dataclasses import replace

import torch
from torch import Tensor

from tokenselect.grid import TokenGrid
from tokenselect.ops.pick import frame_patches, pick_rows
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
            blended = grid.with_frames(blend_frames(grid.frames, indicator))
            return blended.placed_by(grid, patches)
        kept = grid.pick(patches, (keep, h, w))
        if grid.class_attention is None:
            return kept
        attention = pick_rows(grid.class_attention.flatten(2), indices).unflatten(2, (h, w))
        return replace(kept, class_attention=attention)  # a region may be chosen by it next


def blend_frames(frames: Tensor, indicator: Tensor) -> Tensor:
    """Mix frames by a soft indicator.

    Args:
        frames: (b, t, ..., c).
        indicator: (b, k, t).

    Returns:
        (b, k, ..., c).
    """
    flat = frames.flatten(2)
    return torch.matmul(indicator.to(flat.dtype), flat).unflatten(2, frames.shape[2:])
