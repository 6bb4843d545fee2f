"""A block of Video Swin: attention in windows and a perceptron, then perhaps patch merging."""

import torch
import torch.nn.functional as F
from torch import Tensor, nn

from tokenselect.backbones.video_swin.attention import WindowAttention
from tokenselect.backbones.video_swin.merging import PatchMerging, merged_thw
from tokenselect.backbones.video_swin.portions import map_portions
from tokenselect.backbones.video_swin.windows import THW
from tokenselect.grid import TokenGrid


class DropPath(nn.Module):
    """Leave a residual branch out for some clips of a batch in training (stochastic depth).

    Args:
        rate: chance of a clip's branch to be left out; the others grow by 1 / (1 - rate).
    """

    def __init__(self, rate: float) -> None:
        super().__init__()
        if not 0 <= rate < 1:
            raise ValueError(f"rate must be in [0, 1), got {rate}")
        self.rate = rate

    def forward(self, branch: Tensor) -> Tensor:
        """Scale each clip of (b, t, h, w, c) by 0 or 1 / (1 - rate)."""
        if not self.training or self.rate == 0:
            return branch
        kept = torch.empty_like(branch[:, :1, :1, :1, :1]).bernoulli_(1 - self.rate)
        return branch * (kept / (1 - self.rate))


class Perceptron(nn.Module):
    """Two linear layers around a GELU."""

    def __init__(self, channels: int, hidden: int) -> None:
        super().__init__()
        self.expand = nn.Linear(channels, hidden)
        self.contract = nn.Linear(hidden, channels)

    def forward(self, tokens: Tensor) -> Tensor:
        """Map (..., c) to (..., c)."""
        return self.contract(F.gelu(self.expand(tokens)))


class Block(nn.Module):
    """Mix the tokens of each window, then transform each token.

    Its windows follow from the grid that comes in: a selector may have made it smaller.

    Args:
        channels: channels of the tokens that come in.
        num_heads: heads of the attention.
        window: largest sides of a window.
        is_shifted: move the windows by half a window.
        merges: end with patch merging, as the last block of a stage does.
        fit_windows: fit the windows to the grid rather than pad the grid to whole windows.
        mlp_ratio: hidden channels of the perceptron, as a multiple of `channels`.
        drop_path: chance of leaving a branch out in training.
    """

    def __init__(
        self,
        channels: int,
        *,
        num_heads: int,
        window: THW,
        is_shifted: bool,
        merges: bool = False,
        fit_windows: bool = True,
        mlp_ratio: float = 4.0,
        drop_path: float = 0.0,
    ) -> None:
        super().__init__()
        self.in_channels = channels
        self.norm_attention = nn.LayerNorm(channels)
        self.attention = WindowAttention(
            channels, num_heads, window=window, is_shifted=is_shifted, fit_windows=fit_windows
        )
        self.norm_mlp = nn.LayerNorm(channels)
        self.mlp = Perceptron(channels, int(channels * mlp_ratio))
        self.drop_path = DropPath(drop_path)
        self.merging = PatchMerging(channels) if merges else None

    def forward(self, grid: TokenGrid) -> TokenGrid:
        """Map a grid to one of the same size or, where the block merges, of half the sides."""
        patches = grid.patches
        patches = patches + self.drop_path(self.attention(self.norm_attention(patches)))
        patches = patches + self.drop_path(self._transform(patches))
        if self.merging is not None:
            patches = self.merging(patches)
        return grid.with_patches(patches)

    def _transform(self, patches: Tensor) -> Tensor:
        tokens = map_portions(
            lambda tokens: self.mlp(self.norm_mlp(tokens)),
            patches.flatten(0, 3),
            width=self.mlp.expand.out_features,
        )
        return tokens.view(patches.shape)

    def out_thw(self, thw: THW) -> THW:
        """Return the grid's size after the block, given that before it."""
        return thw if self.merging is None else merged_thw(thw)
