"""What all selectors share: their site, their scoring, and what they kept, for recording."""

from collections.abc import Callable
from dataclasses import dataclass

from torch import Tensor, nn

from tokenselect.grid import TokenGrid
from tokenselect.plan import THW, Site
from tokenselect.selectors.relaxation import Relaxation
from tokenselect.selectors.scoring import Scoring


@dataclass(frozen=True)
class Selection:
    """One site's choice for a batch of clips, detached.

    Attributes:
        site: where.
        scores: one a candidate: frames (b, t), anchors (b, t, g) or patches (b, t, n).
        indices: the kept ones in input order: frames (b, k), anchors (b, t) or patches (b, t, k).
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
        self.recorder: Callable[[Selection], None] | None = None

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
        """Tell the recorder, if there is one, what was kept."""
        if self.recorder is not None:
            after = self.site.kept_thw(grid.thw)
            scores = scores.detach()
            self.recorder(Selection(self.site, scores, indices, grid.thw, after, corners))

    def extra_repr(self) -> str:
        """Show the site in `print(model)`."""
        return str(self.site)
