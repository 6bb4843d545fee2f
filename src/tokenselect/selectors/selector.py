"""Selectors of frames, regions and single tokens (paper, section 3.3); those that merge, as ToMe
does, are further baselines. All record what they keep."""

from collections.abc import Callable
from dataclasses import dataclass, replace

import torch
from torch import Tensor, nn

from tokenselect.grid import TokenGrid
from tokenselect.ops.anchors import Pair, blend_anchors, corners_of, default_stride
from tokenselect.ops.merge import group_frames, merge_tokens
from tokenselect.ops.pick import frame_patches, pick_rows, region_patches
from tokenselect.ops.topk_hard import hard_topk
from tokenselect.plan import THW, Site
from tokenselect.selectors.relaxation import Relaxation
from tokenselect.selectors.scoring import Scoring


@dataclass(frozen=True)
class Selection:
    """One site's choice for a batch of clips, detached."""

    site: Site  # where
    # one per candidate: frames (b, t), anchors (b, t, g), the patches of each frame (b, t, n) or of
    # the whole clip (b, t·n)
    scores: Tensor
    # the kept ones in input order: frames (b, k), anchors (b, t), patches of each frame (b, t, k)
    # or of the whole clip (b, k)
    indices: Tensor
    thw_before: THW  # the grid the selector was given
    thw_after: THW  # the grid it gave on
    # first row and column of each frame's kept region (b, t, 2); None for other kinds
    corners: Tensor | None = None

    @property
    def patches(self) -> Tensor:
        """(b, k) the kept patches, counted in the t·h·w of `thw_before`, in their new order."""
        _, h, w = self.thw_before
        if self.corners is not None:
            return region_patches(self.corners, (h, w), self.thw_after[1:])
        if self.site.kind == "T":
            return frame_patches(self.indices, h * w)
        return self.indices if self.indices.ndim == 2 else in_clip(self.indices, h * w)


def in_clip(indices: Tensor, size: int) -> Tensor:
    """Count (b, t, k) patches of frames of `size` patches through the clip: (b, t·k)."""
    starts = torch.arange(indices.shape[1], device=indices.device)[:, None] * size
    return (indices + starts).flatten(1)


class Selector(nn.Module):
    """Keeps part of a `TokenGrid`: hard in evaluation, through the relaxation while training.

    Args:
        site: where, and how much to keep.
        scoring: says what matters; None where tokens are merged instead.
        relaxation: stands in for the hard choice while training, if anything does.
        stride: rows and columns between candidate regions; None for the scoring's own.
    """

    def __init__(
        self,
        site: Site,
        *,
        scoring: Scoring | None = None,
        relaxation: Relaxation | None = None,
        stride: Pair | None = None,
    ) -> None:
        super().__init__()
        self.site, self.stride = site, stride
        self.scoring, self.relaxation = scoring or Scoring(), relaxation
        self.parts = self.scoring.anchor_parts  # another scoring must find the same candidates
        self.recorders: list[Callable[[Selection], None]] = []

    def relax(self, scores: Tensor, k: int) -> Tensor | None:
        """Give the soft indicator (..., k, l), or None where the selection is hard."""
        if self.relaxation is None or not (self.training and self.relaxation.is_active):
            return None
        if self.scoring.is_even:  # no score can change
            return None
        return self.relaxation(scores, k)

    def record(
        self, grid: TokenGrid, scores: Tensor, indices: Tensor, *, corners: Tensor | None = None
    ) -> None:
        """Tell the recorders what was kept."""
        if not self.recorders:
            return
        after = self.site.kept_thw(grid.thw)
        selection = Selection(self.site, scores.detach(), indices, grid.thw, after, corners)
        for recorder in self.recorders:
            recorder(selection)

    def extra_repr(self) -> str:
        """Show the site in `print(model)`."""
        return str(self.site)


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
    """Mix (b, t, ..., c) frames by a soft (b, k, t) indicator: (b, k, ..., c)."""
    flat = frames.flatten(2)
    return torch.matmul(indicator.to(flat.dtype), flat).unflatten(2, frames.shape[2:])


class RegionSelector(Selector):
    """Keeps the best-scoring rectangle of each frame, the same size in all."""

    def forward(self, grid: TokenGrid) -> TokenGrid:
        """Cut the best region out of each frame."""
        t, h, w = grid.thw
        side = self.site.region_side(h, w)
        parts = 1 if self.scoring.is_even else self.parts  # finer anchors may miss the middle
        stride = self.stride or default_stride((h, w), side, parts)
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


class TokenSelector(Selector):
    """Keeps the best patches of each frame wherever they are, laid out anew as a smaller frame.

    This breaks the frame's structure (the ablation of Table 6). As many stay as in a region of the
    same site, so the two cost the same.
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
        patches = in_clip(indices, h * w)
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
        if side == (h, w):
            return grid
        return replace(grid.pick(patches, (t, *side)), is_loose=True)


class FrameMerger(Selector):
    """Joins the most alike neighbouring frames until as many runs are left as the site keeps.

    Each run becomes the mean of its frames, so the grid stays a grid: this is how merging goes into
    backbones that pool or cut windows. What is recorded as kept is the middle frame of each run.
    """

    def forward(self, grid: TokenGrid) -> TokenGrid:
        """Merge frames."""
        t, h, w = grid.thw
        keep = self.site.frames_kept(t)
        shares = group_frames(grid.patches.flatten(2), keep)  # (b, k, t)
        places = torch.arange(t, device=shares.device, dtype=shares.dtype)
        indices = (shares @ places).floor().long()  # (b, k), the middle of each run
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
        return replace(smaller.placed_by(grid, places), is_loose=True)
