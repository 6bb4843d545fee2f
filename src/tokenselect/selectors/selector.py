"""What all selectors share: their site, their scoring, and what they kept, for recording."""

from collections.abc import Callable
from dataclasses import dataclass

import torch
from torch import Tensor, nn

from tokenselect.grid import TokenGrid
from tokenselect.ops.pick import frame_patches, region_patches
from tokenselect.plan import THW, Site
from tokenselect.selectors.relaxation import Relaxation
from tokenselect.selectors.scoring import Scoring


@dataclass(frozen=True)
class Selection:
    """One site's choice for a batch of clips, detached.

    Attributes:
        site: where.
        scores: one per candidate: frames (b, t), anchors (b, t, g), the patches of each frame
            (b, t, n) or of the whole clip (b, t·n).
        indices: the kept ones in input order: frames (b, k), anchors (b, t), patches of each frame
            (b, t, k) or of the whole clip (b, k).
        thw_before: the grid the selector was given.
        thw_after: the grid it gave on.
        corners: first row and column of each frame's kept region (b, t, 2); None for other kinds.
    """

    site: Site
    scores: Tensor
    indices: Tensor
    thw_before: THW
    thw_after: THW
    corners: Tensor | None = None

    @property
    def patches(self) -> Tensor:
        """(b, k) the kept patches, counted in the t·h·w of `thw_before`, in their new order."""
        t, h, w = self.thw_before
        if self.corners is not None:
            return region_patches(self.corners, (h, w), self.thw_after[1:])
        if self.site.kind == "T":
            return frame_patches(self.indices, h * w)
        if self.indices.ndim == 2:
            return self.indices
        starts = torch.arange(t, device=self.indices.device)[:, None] * (h * w)
        return (self.indices + starts).flatten(1)


class Selector(nn.Module):
    """Keeps part of a `TokenGrid`: hard in evaluation, through the relaxation while training.

    Args:
        site: how much to keep.
        scoring: what matters.
        relaxation: stands in for hard Top-K while training; None for methods that do not learn.
    """

    def __init__(
        self, site: Site, *, scoring: Scoring, relaxation: Relaxation | None = None
    ) -> None:
        super().__init__()
        self.site = site
        self.scoring = scoring
        self.relaxation = relaxation
        self.recorders: list[Callable[[Selection], None]] = []

    def relax(self, scores: Tensor, k: int) -> Tensor | None:
        """Give the soft indicator (..., k, l), or None where the selection is hard."""
        if self.relaxation is None or not (self.training and self.relaxation.is_active):
            return None
        return self.relaxation(scores, k)

    def record(
        self,
        grid: TokenGrid,
        scores: Tensor,
        indices: Tensor,
        *,
        corners: Tensor | None = None,
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
