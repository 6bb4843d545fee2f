"""The class token and the learned places of tokens: a table of space, a table of time."""

import torch
import torch.nn.functional as F
from torch import Tensor, nn

from tokenselect.backbones.mvit.convolution import THW


class Positions(nn.Module):
    """Add places to patches and put the class token before them.

    A grid of another size than the tables' gets them interpolated, so a model runs on clips of any
    length and size.

    Args:
        thw: grid the tables are made for.
        channels: channels of the tokens.
    """

    def __init__(self, thw: THW, channels: int) -> None:
        super().__init__()
        t, h, w = thw
        self.class_token = nn.Parameter(torch.zeros(channels))
        self.class_position = nn.Parameter(torch.zeros(channels))
        self.space = nn.Parameter(torch.zeros(h, w, channels))
        self.time = nn.Parameter(torch.zeros(t, channels))
        for table in self.parameters():
            nn.init.trunc_normal_(table, std=0.02)

    def forward(self, patches: Tensor, *, out: Tensor | None = None) -> Tensor:
        """Turn (b, t, h, w, c) patches into (b, 1 + t·h·w, c) tokens; `out` takes them."""
        t, h, w = patches.shape[1:4]
        space, time = self.tables((t, h, w))
        first = self.class_token + self.class_position
        if out is None:
            patches = patches + (space + time[:, None, None])
            return torch.cat([first.expand(patches.shape[0], 1, -1), patches.flatten(1, 3)], dim=1)
        out[:, 0] = first
        places = out[:, 1:].unflatten(1, (t, h, w))
        torch.add(patches, space, out=places).add_(time[:, None, None])
        return out

    def tables(self, thw: THW) -> tuple[Tensor, Tensor]:
        """Return the (h, w, c) and (t, c) tables of a grid of size `thw`."""
        t, h, w = thw
        space: Tensor = self.space
        time: Tensor = self.time
        if space.shape[:2] != (h, w):
            image = F.interpolate(space.permute(2, 0, 1)[None], size=(h, w), mode="bilinear")
            space = image[0].permute(1, 2, 0)
        if time.shape[0] != t:
            time = F.interpolate(time.t()[None], size=t, mode="linear")[0].t()
        return space, time
