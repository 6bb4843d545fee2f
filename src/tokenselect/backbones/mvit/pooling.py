"""Pooling of patches: learned for q, k and v, the maximum for the skip path."""

import torch.nn.functional as F
from torch import Tensor, nn

from tokenselect.backbones.mvit.convolution import THW, convolve_tokens


def pooled_thw(thw: THW, stride: THW) -> THW:
    """Return the size of a grid after pooling: each side divided by its stride, rounded up."""
    t, h, w = (-(-side // step) for side, step in zip(thw, stride, strict=True))
    return t, h, w


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
    """

    def __init__(self, channels: int, *, kernel: THW) -> None:
        super().__init__()
        if any(side % 2 == 0 for side in kernel):
            raise ValueError(f"kernel must have odd sides, got {kernel}")
        self.conv = nn.Conv3d(channels, channels, kernel, groups=channels, bias=False)
        self.norm = nn.LayerNorm(channels, eps=1e-6)

    def forward(self, tokens: Tensor, *, thw: THW, stride: THW) -> Tensor:
        """Map (b, p + t·h·w, heads·d) tokens to (b, p + t'·h'·w', heads, d)."""
        pooled = convolve_tokens(tokens, self.conv.weight, thw=thw, stride=stride)
        return self.norm(pooled.unflatten(-1, (-1, self.norm.normalized_shape[0])))
