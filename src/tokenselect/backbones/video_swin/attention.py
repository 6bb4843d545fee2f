"""Attention within windows of a grid of any size (Video Swin, section 3.2)."""

import torch
import torch.nn.functional as F
from einops import rearrange
from torch import Tensor, nn

from tokenselect.backbones.video_swin.bias import offset_bias, seam_mask
from tokenselect.backbones.video_swin.windows import THW, Run, WindowLayout, lay_windows


class WindowAttention(nn.Module):
    """Multi-head attention among the tokens of each window, with biases by relative position.

    Args:
        channels: channels of the tokens.
        num_heads: heads, dividing the channels.
        window: largest sides of a window; they set the size of the bias table.
        is_shifted: move the windows by half a window.
        fit_windows: fit the windows to the grid rather than pad the grid to whole windows.
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
        t, h, w = patches.shape[1:4]
        layout = lay_windows(
            (t, h, w), self.window, is_shifted=self.is_shifted, fit=self.fit_windows
        )
        patches = _pad_and_roll(patches, layout)
        mixed = self._attend(self.qkv(patches), layout)
        return _unroll_and_crop(self.project(mixed), layout, (t, h, w))

    def _attend(self, qkv: Tensor, layout: WindowLayout) -> Tensor:
        """Map (b, t, h, w, 3·c) queries, keys and values to (b, t, h, w, c)."""
        mixed = qkv.new_empty(*qkv.shape[:4], qkv.shape[4] // 3)
        for group in layout.groups:
            place = (slice(None), *(run.span for run in group))
            mixed[place] = self._attend_group(qkv[place], group)
        return mixed

    def _attend_group(self, qkv: Tensor, group: tuple[Run, Run, Run]) -> Tensor:
        time, rows, columns = group
        sides = {"t": time.size, "h": rows.size, "w": columns.size}
        q, k, v = rearrange(
            qkv,
            "b (tn t) (hn h) (wn w) (qkv heads d) -> qkv (b tn hn wn) heads (t h w) d",
            qkv=3,
            heads=self.num_heads,
            **sides,
        )
        mixed = F.scaled_dot_product_attention(q, k, v, attn_mask=self._bias(group)[None])
        return rearrange(
            mixed,
            "(b tn hn wn) heads (t h w) d -> b (tn t) (hn h) (wn w) (heads d)",
            tn=time.count,
            hn=rows.count,
            wn=columns.count,
            **sides,
        )

    def _bias(self, group: tuple[Run, Run, Run]) -> Tensor:
        """Return the (heads, n, n) biases of a group's windows, -inf across a seam."""
        time, rows, columns = group
        size = time.size, rows.size, columns.size
        bias = offset_bias(self.bias_table, window=self.window, size=size)
        parted = seam_mask(group, bias.device)
        return bias if parted is None else bias.masked_fill(parted, float("-inf"))


def _pad_and_roll(patches: Tensor, layout: WindowLayout) -> Tensor:
    t, h, w = (whole - side for whole, side in zip(layout.thw, patches.shape[1:4], strict=True))
    if t or h or w:
        patches = F.pad(patches, (0, 0, 0, w, 0, h, 0, t))
    if any(layout.shift):
        patches = patches.roll([-shift for shift in layout.shift], (1, 2, 3))
    return patches


def _unroll_and_crop(patches: Tensor, layout: WindowLayout, thw: THW) -> Tensor:
    if any(layout.shift):
        patches = patches.roll(layout.shift, (1, 2, 3))
    t, h, w = thw
    return patches[:, :t, :h, :w]
