"""A block of Video Swin: attention in windows, an MLP, perhaps patch merging (section 3)."""

import math
from collections.abc import Iterator
from itertools import chain, starmap
from operator import index
from typing import Any

import torch
import torch.nn.functional as F
from einops import rearrange
from torch import Tensor, nn
from torch.autograd.function import once_differentiable

from tokenselect.backbones.fast_cpu import can_split, collect, split_portions
from tokenselect.backbones.layers import DropPath, Mlp
from tokenselect.backbones.video_swin.windows import WindowShape, lay_windows
from tokenselect.grid import TokenGrid
from tokenselect.plan import THW


def offset_bias(table: Tensor, *, window: THW, size: THW, seam: THW = (0, 0, 0)) -> Tensor:
    """Look up the biases of a window that may be smaller than the one the table was made for.

    Args:
        table: (offsets, heads); offsets in time, rows and columns from -(side - 1) to side - 1.
        window: sides of the largest window.
        size: sides of the actual window of n tokens, none larger.
        seam: tokens before the seam of each axis, or 0; pairs across a seam get -inf.

    Returns:
        (heads, n, n) biases of query tokens (dim 1) towards key tokens (dim 2).
    """
    place = _places(window, size, seam, table.device)
    centre = len(table) // 2 + 1  # one of the two outside values stands in front
    index = (place[:, None] - place + centre).clamp(0, len(table) + 1)
    biases = F.pad(table.t(), (1, 1), value=-math.inf)  # (heads, 1 + offsets + 1)
    n = len(place)
    return biases.index_select(1, index.flatten()).view(-1, n, n)


def _places(window: THW, size: THW, seam: THW, device: torch.device) -> Tensor:
    """Give each of a window's n tokens a number so that differences are the table's rows.

    Beyond a seam the numbers jump by more than the table's length, and by another amount on each
    axis: differences across any seam fall outside the table.
    """
    t, h, w = (2 * side - 1 for side in window)
    jump = 2 * t * h * w
    axes = []
    for side, step, before in zip(size, (h * w, w, 1), seam, strict=True):
        numbers = [i * step + jump * (0 < before <= i) for i in range(side)]
        axes.append(torch.tensor(numbers, device=device))
        jump = 2 * jump
    times, rows, columns = axes
    return (times[:, None, None] + rows[:, None] + columns).flatten()


def attend(q: Tensor, k: Tensor, v: Tensor, bias: Tensor) -> Tensor:
    """Attend within windows: (windows, heads, n, d) queries, keys and values to the same shape.

    The (heads, n, n) bias is added to the scores of queries (dim 1) and keys (dim 2).
    """
    bias = bias.to(q.dtype)
    is_plain = q.device.type != "cpu" or torch.compiler.is_compiling()
    if is_plain or not (torch.is_grad_enabled() and bias.requires_grad):
        return F.scaled_dot_product_attention(q, k, v, attn_mask=bias[None])
    return _BiasedAttention.apply(q, k, v, bias)


class _BiasedAttention(torch.autograd.Function):
    """Fused attention with a learned bias that keeps no scores for the backward pass.

    torch's fused attention gives no gradient to its mask on a CPU; its plain attention does, but
    keeps the scores of all windows. Here the backward pass makes them again, a portion at a time.
    """

    @staticmethod
    def forward(ctx: Any, q: Tensor, k: Tensor, v: Tensor, bias: Tensor) -> Tensor:
        mixed = F.scaled_dot_product_attention(q, k, v, attn_mask=bias.detach()[None])
        ctx.save_for_backward(q, k, v, bias, mixed)
        return mixed

    @staticmethod
    @once_differentiable
    def backward(ctx: Any, grad: Tensor) -> tuple[Tensor, ...]:
        *given, bias, mixed = ctx.saved_tensors
        grads, grad_bias = [torch.empty_like(one) for one in given], torch.zeros_like(bias)
        scale = mixed.shape[-1] ** -0.5
        # a head at a time, a few windows at a time: four matrices of scores fit the cache
        for head in range(len(bias)):
            wholes = (whole[:, head] for whole in (*given, mixed, grad, *grads))
            parts = (split_portions(whole, width=4 * bias[head].numel()) for whole in wholes)
            for q, k, v, out, grad_out, grad_q, grad_k, grad_v in zip(*parts, strict=True):
                weights = torch.baddbmm(bias[head], q, k.mT, alpha=scale).softmax(dim=-1)
                grad_v.copy_(torch.bmm(weights.mT, grad_out))
                grad_scores = torch.bmm(grad_out, v.mT)  # (windows, n, n), like the weights
                grad_scores.sub_((grad_out * out).sum(dim=-1, keepdim=True)).mul_(weights)
                grad_q.copy_(torch.bmm(grad_scores, k)).mul_(scale)
                grad_k.copy_(torch.bmm(grad_scores.mT, q)).mul_(scale)
                grad_bias[head] += grad_scores.sum(dim=0)
        return *grads, grad_bias


class WindowAttention(nn.Module):
    """Multi-head attention among the tokens of each window, with biases by relative position.

    Args:
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
        self.num_heads, self.head_channels = num_heads, channels // num_heads
        self.window, self.is_shifted, self.fit_windows = window, is_shifted, fit_windows
        self.qkv = nn.Linear(channels, 3 * channels)
        self.project = nn.Linear(channels, channels)
        t, h, w = (2 * side - 1 for side in window)
        self.bias_table = nn.Parameter(torch.empty(t * h * w, num_heads))
        nn.init.trunc_normal_(self.bias_table, std=0.02)

    def forward(self, patches: Tensor) -> Tensor:
        """Map (b, t, h, w, c) to the same shape."""
        b, t, h, w, _ = patches.shape
        if not self.fit_windows:
            patches = pad_to_windows(patches, self.window)
        rows = patches.flatten(0, 3)  # (n, c)
        layout = lay_windows(_sides(patches), self.window, is_shifted=self.is_shifted)
        order = layout.token_order(b, patches.device)
        mixed = self._mix(rows.index_select(0, order), layout.shapes(b))
        places = torch.arange(order.shape[0], device=order.device)  # not len(): it fixes a batch
        inverse = torch.empty_like(order).scatter(0, order, places)  # where each token went
        mixed = mixed.index_select(0, inverse).view(patches.shape)
        return mixed if self.fit_windows else mixed[:, :t, :h, :w]

    def _mix(self, windows: Tensor, shapes: list[WindowShape]) -> Tensor:
        """Attend within (n, c) windows of the given shapes."""
        sizes = [shape.count * shape.tokens for shape in shapes]
        if can_split(windows, self.qkv, self.project):
            parts = zip(windows.split(sizes), shapes, strict=True)
            return collect(chain.from_iterable(starmap(self._mix_portions, parts)), like=windows)
        parts = zip(self.qkv(windows).split(sizes), shapes, strict=True)
        mixed = [self._attend(qkv, self._bias(shape)) for qkv, shape in parts]
        return self.project(torch.cat(mixed))

    def _mix_portions(self, windows: Tensor, shape: WindowShape) -> Iterator[Tensor]:
        """Attend within windows of one shape, some (m, c) tokens at a time."""
        bias = self._bias(shape)
        for tokens in split_portions(windows, width=self.qkv.out_features, unit=shape.tokens):
            yield self.project(self._attend(self.qkv(tokens), bias))

    def _bias(self, shape: WindowShape) -> Tensor:
        return offset_bias(self.bias_table, window=self.window, size=shape.size, seam=shape.seam)

    def _attend(self, qkv: Tensor, bias: Tensor) -> Tensor:
        """Attend within windows of one shape: (n, 3c) to (n, c), given (heads, m, m) biases."""
        heads = (-1, bias.shape[-1], 3, self.num_heads, self.head_channels)
        q, k, v = qkv.view(heads).transpose(1, 3).unbind(2)  # each (windows, heads, m, d)
        mixed = attend(q, k, v, bias).transpose(1, 2)  # (windows, m, heads, d)
        return mixed.flatten(2).flatten(0, 1)


def _sides(patches: Tensor) -> THW:
    """Return t, h, w as plain numbers: the windows of each size are a graph of their own."""
    t, h, w = patches.shape[1:4]
    return index(t), index(h), index(w)


def pad_to_windows(patches: Tensor, window: THW) -> Tensor:
    """Pad the sides of (b, t, h, w, c) that are longer than the window to a multiple of it."""
    sides = zip(patches.shape[1:4], window, strict=True)
    t, h, w = (-side % largest if side > largest else 0 for side, largest in sides)
    return F.pad(patches, (0, 0, 0, w, 0, h, 0, t)) if t or h or w else patches


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


class Block(nn.Module):
    """Mix the tokens of each window, then transform each token.

    Its windows follow from the grid that comes in: a selector may have made it smaller. The
    arguments are as in `WindowAttention` and `VideoSwin`; the last block of a stage `merges`.
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
        self.mlp = Mlp(channels, int(channels * mlp_ratio), channels)
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
        if not can_split(patches, self.norm_mlp, self.mlp):
            return self.mlp(self.norm_mlp(patches))
        rows = patches.flatten(0, 3)  # (n, c)
        portions = split_portions(rows, width=self.mlp.expand.out_features)
        changed = (self.mlp(self.norm_mlp(tokens)) for tokens in portions)
        return collect(changed, like=rows).view(patches.shape)

    def out_thw(self, thw: THW) -> THW:
        """Return the grid's size after the block, given that before it."""
        t, h, w = thw
        return thw if self.merging is None else (t, (h + 1) // 2, (w + 1) // 2)
