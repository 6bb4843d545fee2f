"""Pooling of patches: the depthwise convolution of q, k and v and the maximum of the skip path.

Tokens stay channels last, so the convolution reads them where they are: heads are folded into
channels by repeating the kernel, and nothing is permuted.
"""

import torch
import torch.nn.functional as F
from torch import Tensor, nn

THW = tuple[int, int, int]


def pooled_thw(thw: THW, stride: THW) -> THW:
    """Return the size of a grid after pooling: each side divided by its stride, rounded up."""
    t, h, w = (-(-side // step) for side, step in zip(thw, stride, strict=True))
    return t, h, w


def convolve_depthwise(patches: Tensor, weight: Tensor, *, stride: THW) -> Tensor:
    """Convolve every channel with its own kernel, zeros outside the grid.

    Args:
        patches: (b, t, h, w, c).
        weight: (d, 1, kt, kh, kw) with odd sides; d divides c, and channel i uses kernel i mod d.
        stride: steps in time, rows and columns.

    Returns:
        (b, t', h', w', c) with sides as `pooled_thw` gives them.
    """
    c = patches.shape[-1]
    kernel = weight.repeat(c // weight.shape[0], 1, 1, 1, 1)
    padding = tuple(side // 2 for side in weight.shape[2:])
    volume = patches.permute(0, 4, 1, 2, 3).contiguous(memory_format=torch.channels_last_3d)
    pooled = F.conv3d(volume, kernel, stride=stride, padding=padding, groups=c)
    return pooled.permute(0, 2, 3, 4, 1)


def pool_maximum(patches: Tensor, *, stride: THW) -> Tensor:
    """Take the maximum over windows that overlap by one on strided sides.

    Args:
        patches: (b, t, h, w, c).
        stride: steps in time, rows and columns; 1 leaves a side alone.

    Returns:
        (b, t', h', w', c) with sides as `pooled_thw` gives them.
    """
    kernel = tuple(step + 1 - step % 2 if step > 1 else 1 for step in stride)
    padding = tuple(side // 2 for side in kernel)
    pooled = F.max_pool3d(patches.permute(0, 4, 1, 2, 3), kernel, stride, padding)
    return pooled.permute(0, 2, 3, 4, 1)


class TokenPool(nn.Module):
    """Pool the patches by a learned depthwise convolution, then normalise every head's tokens.

    The class tokens are not pooled, only normalised.

    Args:
        channels: d, channels of one head; the heads share kernel and norm.
        kernel: sides of the kernel, odd.
        stride: steps in time, rows and columns.
    """

    def __init__(self, channels: int, *, kernel: THW, stride: THW) -> None:
        super().__init__()
        if any(side % 2 == 0 for side in kernel):
            raise ValueError(f"kernel must have odd sides, got {kernel}")
        self.stride = stride
        self.conv = nn.Conv3d(channels, channels, kernel, stride, groups=channels, bias=False)
        self.norm = nn.LayerNorm(channels, eps=1e-6)

    def forward(self, tokens: Tensor, thw: THW) -> Tensor:
        """Map (b, p + t·h·w, heads·d) tokens to (b, p + t'·h'·w', heads, d)."""
        p = tokens.shape[1] - thw[0] * thw[1] * thw[2]
        patches = tokens[:, p:].unflatten(1, thw)
        pooled = convolve_depthwise(patches, self.conv.weight, stride=self.stride)
        tokens = torch.cat([tokens[:, :p], pooled.flatten(1, 3)], dim=1)
        return self.norm(tokens.unflatten(-1, (-1, self.norm.normalized_shape[0])))
