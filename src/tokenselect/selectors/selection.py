"""What a selector kept, for recording, pictures and recall."""

from dataclasses import dataclass

from torch import Tensor

from tokenselect.plan import THW, Site


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
