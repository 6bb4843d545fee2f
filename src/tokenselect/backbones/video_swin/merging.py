"""Patch merging: two by two tokens become one of twice the channels (Video Swin, section 3.1)."""

import torch.nn.functional as F
from einops import rearrange
from torch import Tensor, nn

from tokenselect.backbones.video_swin.windows import THW


class PatchMerging(nn.Module):
    """Halve rows and columns, double the channels; an odd side is padded with zeros."""

    def __init__(self, channels: int) -> None:
        super().__init__()
        self.norm = nn.LayerNorm(4 * channels)
        self.reduce = nn.Linear(4 * channels, 2 * channels, bias=False)

    def forward(self, patches: Tensor) -> Tensor:
        """Map (b, t, h, w, c) to (b, t, ⌈h/2⌉, ⌈w/2⌉, 2·c)."""
        h, w = patches.shape[2:4]
        if h % 2 or w % 2:
            patches = F.pad(patches, (0, 0, 0, w % 2, 0, h % 2))
        quads = rearrange(patches, "b t (h i) (w j) c -> b t h w (j i c)", i=2, j=2)
        return self.reduce(self.norm(quads))


def merged_thw(thw: THW) -> THW:
    """Return the grid's size after merging."""
    t, h, w = thw
    return t, (h + 1) // 2, (w + 1) // 2
