"""A block of MViT: pooled attention and a perceptron, each beside a skip path."""

import math

import torch
from torch import Tensor, nn

from tokenselect.backbones.layers import DropPath, Perceptron
from tokenselect.backbones.mvit.attention import PooledAttention
from tokenselect.backbones.mvit.convolution import THW
from tokenselect.backbones.mvit.parts import (
    clips_at_once,
    fill_in_parts,
    is_cpu_inference,
    tokens_at_once,
)
from tokenselect.backbones.mvit.pooling import pool_maximum, pooled_thw
from tokenselect.backbones.mvit.products import add_linear, apply_linear, gelu_linear
from tokenselect.grid import TokenGrid


class Block(nn.Module):
    """Pool and mix tokens, then transform each; the grid it works on is the one that comes in.

    Args:
        channels: channels of the tokens that come in.
        out_channels: channels of the tokens that leave, changed in the perceptron.
        num_heads: heads of the attention.
        q_stride: pooling steps of the queries and of the skip path, hence of the output.
        kv_stride: pooling steps of the keys and values.
        kernel: sides of the pooling kernels, odd.
        mlp_ratio: hidden channels of the perceptron, as a multiple of `channels`.
        drop_path: chance of leaving a branch out in training.
    """

    def __init__(
        self,
        channels: int,
        out_channels: int,
        *,
        num_heads: int,
        q_stride: THW = (1, 1, 1),
        kv_stride: THW = (1, 1, 1),
        kernel: THW = (3, 3, 3),
        mlp_ratio: float = 4.0,
        drop_path: float = 0.0,
    ) -> None:
        super().__init__()
        self.in_channels = channels
        self.q_stride = q_stride
        self.norm_attention = nn.LayerNorm(channels, eps=1e-6)
        self.attention = PooledAttention(
            channels, num_heads, q_stride=q_stride, kv_stride=kv_stride, kernel=kernel
        )
        self.project = nn.Linear(channels, channels)
        self.norm_mlp = nn.LayerNorm(channels, eps=1e-6)
        self.mlp = Perceptron(channels, int(channels * mlp_ratio), out_channels)
        self.widen = nn.Linear(channels, out_channels) if out_channels != channels else None
        self.drop_path = DropPath(drop_path)

    def forward(self, grid: TokenGrid) -> TokenGrid:
        """Map a grid to one whose sides are divided by the q stride, rounded up."""
        thw = self.out_thw(grid.thw)
        tokens = grid.tokens
        if self.training or not is_cpu_inference(tokens):
            return grid.with_tokens(self._transform(*self._mix(grid)), thw)
        size = (len(tokens), grid.num_prefix + math.prod(thw), self.mlp.contract.out_features)
        out = fill_in_parts(
            lambda clips, out: self._fill(grid.with_tokens(clips), out),
            tokens,
            out=tokens.new_empty(size),
            at_once=clips_at_once(tokens[0].numel()),
        )
        return grid.with_tokens(out, thw)

    def out_thw(self, thw: THW) -> THW:
        """Return the grid's size after the block, given that before it."""
        return pooled_thw(thw, self.q_stride)

    def class_attention(self, grid: TokenGrid) -> Tensor:
        """Return the class token's (b, t', h', w') attention on the output's grid.

        It is computed anew from the block's input: only selection by attention asks for it.
        """
        if not grid.num_prefix:
            raise ValueError("class_attention needs a class token, got a grid with num_prefix=0")
        return self.attention.class_attention(self.norm_attention(grid.tokens), grid.thw)

    def _mix(self, grid: TokenGrid) -> tuple[Tensor, Tensor]:
        """Return the skip path and what attention mixed, both (b, p + t'·h'·w', c)."""
        mixed = self.attention(self.norm_attention(grid.tokens), grid.thw)
        return self._pool_skip(grid), mixed

    def _fill(self, grid: TokenGrid, out: Tensor) -> None:
        """Write the block's tokens to `out`, a cacheful at a time."""
        flat = [tokens.flatten(0, 1) for tokens in (*self._mix(grid), out)]
        at_once = tokens_at_once(flat[0].shape[1])
        fill_in_parts(self._transform, *flat[:2], out=flat[2], at_once=at_once)

    def _transform(self, skip: Tensor, mixed: Tensor, out: Tensor | None = None) -> Tensor:
        """Add what attention mixed to the skip path and transform each token alone."""
        tokens = self._add(skip, mixed, self.project)
        normed = self.norm_mlp(tokens)
        if self.widen is not None:
            tokens = apply_linear(normed, self.widen, out=out)
        return self._add(tokens, gelu_linear(normed, self.mlp.expand), self.mlp.contract, out)

    def _add(
        self, skip: Tensor, tokens: Tensor, layer: nn.Linear, out: Tensor | None = None
    ) -> Tensor:
        if self.training:  # clip by clip: drop path must see which tokens make one
            return skip + self.drop_path(layer(tokens))
        return add_linear(skip, tokens, layer, out=out)

    def _pool_skip(self, grid: TokenGrid) -> Tensor:
        if max(self.q_stride) == 1:
            return grid.tokens
        patches = pool_maximum(grid.patches, stride=self.q_stride)
        return torch.cat([grid.prefix, patches.flatten(1, 3)], dim=1)
