"""A block of Video Swin: attention in windows and a perceptron, then perhaps patch merging."""

from torch import Tensor, nn

from tokenselect.backbones.layers import DropPath, Perceptron
from tokenselect.backbones.video_swin.attention import WindowAttention
from tokenselect.backbones.video_swin.merging import PatchMerging, merged_thw
from tokenselect.backbones.video_swin.portions import map_portions
from tokenselect.backbones.video_swin.windows import THW
from tokenselect.grid import TokenGrid


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
        self.mlp = Perceptron(channels, int(channels * mlp_ratio), channels)
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
