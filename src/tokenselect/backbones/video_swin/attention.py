"""Attention within windows of a grid of any size (Video Swin, section 3.2)."""

from collections.abc import Iterator
from operator import index

import torch
import torch.nn.functional as F
from torch import Tensor, nn

from tokenselect.backbones.video_swin.bias import offset_bias
from tokenselect.backbones.video_swin.biased_attention import attend
from tokenselect.backbones.video_swin.portions import collect, split_portions
from tokenselect.backbones.video_swin.windows import THW, Shape, lay_windows, padded_thw


class WindowAttention(nn.Module):
    """Multi-head attention among the tokens of each window, with biases by relative position.

    Args:
        channels: channels of the tokens.
        num_heads: heads, dividing the channels.
        window: largest sides of a window; they set the size of the bias table.
        is_shifted: move the windows by half a window.
        fit_windows: fit the windows to the grid. Otherwise pad the grid to whole windows, as the
            original does; there, tokens see the padding.
    """

    def __init__(
        self,
        channels: int,
        num_heads: int,
        *,
        window: THW,
        is_shifted: bool,
        fit_windows: bool = True,
    ) -> None:
        super().__init__()
        if channels % num_heads:
            raise ValueError(f"num_heads must divide {channels} channels, got {num_heads}")
        self.num_heads = num_heads
        self.head_channels = channels // num_heads
        self.window = window
        self.is_shifted = is_shifted
        self.fit_windows = fit_windows
        self.qkv = nn.Linear(channels, 3 * channels)
        self.project = nn.Linear(channels, channels)
        t, h, w = (2 * side - 1 for side in window)
        self.bias_table = nn.Parameter(torch.empty(t * h * w, num_heads))
        nn.init.trunc_normal_(self.bias_table, std=0.02)

    def forward(self, patches: Tensor) -> Tensor:
        """Map (b, t, h, w, c) to the same shape."""
        b, t, h, w, _ = patches.shape
        if not self.fit_windows:
            patches = _pad(patches, padded_thw((t, h, w), self.window))
        rows = patches.flatten(0, 3)  # (n, c)
        layout = lay_windows(_sides(patches), self.window, is_shifted=self.is_shifted)
        order = layout.token_order(b, patches.device)
        windows = rows.index_select(0, order)
        mixed = collect(self._mix(windows, layout.shapes(b)), like=windows)
        mixed = mixed.index_select(0, _inverse(order)).view(patches.shape)
        return mixed if self.fit_windows else mixed[:, :t, :h, :w]

    def _mix(self, windows: Tensor, shapes: list[Shape]) -> Iterator[Tensor]:
        """Attend within (n, c) windows of the given shapes, some (m, c) of them at a time."""
        parts = windows.split([shape.count * shape.tokens for shape in shapes])
        for part, shape in zip(parts, shapes, strict=True):
            bias = offset_bias(
                self.bias_table, window=self.window, size=shape.size, seam=shape.seam
            )
            for tokens in split_portions(part, width=self.qkv.out_features, unit=shape.tokens):
                yield self._attend(tokens, bias)

    def _attend(self, tokens: Tensor, bias: Tensor) -> Tensor:
        """Attend within windows of one shape: (n, c) to (n, c), given (heads, m, m) biases."""
        qkv = self.qkv(tokens).view(-1, bias.shape[-1], 3, self.num_heads, self.head_channels)
        q, k, v = qkv.transpose(1, 3).unbind(2)  # each (windows, heads, m, d)
        mixed = attend(q, k, v, bias).transpose(1, 2)  # (windows, m, heads, d)
        return self.project(mixed.reshape(tokens.shape))


def _sides(patches: Tensor) -> THW:
    """Return t, h, w as plain numbers: the windows of each size are a graph of their own."""
    t, h, w = patches.shape[1:4]
    return index(t), index(h), index(w)


def _pad(patches: Tensor, thw: THW) -> Tensor:
    t, h, w = (whole - side for whole, side in zip(thw, patches.shape[1:4], strict=True))
    return F.pad(patches, (0, 0, 0, w, 0, h, 0, t)) if t or h or w else patches


def _inverse(order: Tensor) -> Tensor:
    """Return where each token went."""
    places = torch.arange(order.shape[0], device=order.device)  # len() would fix an exported batch
    return torch.empty_like(order).scatter(0, order, places)
