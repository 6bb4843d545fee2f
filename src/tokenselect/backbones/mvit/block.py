"""A block of MViT: pooled attention and an MLP, each beside a skip path (MViT, section 3)."""

import math

import torch
import torch.nn.functional as F
from torch import Tensor, nn

from tokenselect.backbones import fast_cpu
from tokenselect.backbones.layers import DropPath, Mlp
from tokenselect.backbones.mvit.convolution import call_on_tokens, convolve_tokens, keep_read
from tokenselect.grid import TokenGrid
from tokenselect.plan import THW


def pooled_thw(thw: THW, stride: THW) -> THW:
    """Return the size of a grid after pooling: each side divided by its stride, rounded up."""
    t, h, w = (-(-side // step) for side, step in zip(thw, stride, strict=True))
    return t, h, w


def pool_maximum(patches: Tensor, *, stride: THW) -> Tensor:
    """Take the maximum of (b, t, h, w, c) patches over windows, overlapping on strided sides.

    A stride of 1 leaves a side alone; `pooled_thw` gives the sides of the result.
    """
    h, w = patches.shape[2:4]
    if fast_cpu.is_traced_inference() and stride == (1, 2, 2) and h % 2 == w % 2 == 0:
        return _halve(_halve(patches, dim=3), dim=2)
    kernel = tuple(step + 1 - step % 2 if step > 1 else 1 for step in stride)
    padding = tuple(side // 2 for side in kernel)
    pooled = F.max_pool3d(patches.permute(0, 4, 1, 2, 3), kernel, stride, padding)
    return pooled.permute(0, 2, 3, 4, 1)


def _halve(patches: Tensor, *, dim: int) -> Tensor:
    """Pool an even side by 2: runtimes would turn the patches round for their own pooling."""
    pairs = patches.unflatten(dim, (-1, 2))
    even, odd = pairs.unbind(dim + 1)
    before = torch.cat([odd.narrow(dim, 0, 1), odd.narrow(dim, 0, odd.shape[dim] - 1)], dim)
    return torch.maximum(torch.maximum(even, odd), before)


class TokenPool(nn.Module):
    """Pool the patches by a learned depthwise convolution, then normalise every head's tokens.

    The class tokens are not pooled, only normalised. `channels` are those of one head, d: the heads
    share kernel and norm. The sides of the kernel are odd.
    """

    def __init__(self, channels: int, *, kernel: THW, stride: THW) -> None:
        super().__init__()
        if any(side % 2 == 0 for side in kernel):
            raise ValueError(f"kernel must have odd sides, got {kernel}")
        self.channels = channels
        self.stride = stride
        kt, kh, kw = kernel
        padding = (kt // 2, kh // 2, kw // 2)
        self.conv = nn.Conv3d(
            channels, channels, kernel, stride, padding, groups=channels, bias=False
        )
        self.norm = nn.LayerNorm(channels, eps=1e-6)

    def forward(self, tokens: Tensor, *, thw: THW, stride: THW | None = None) -> Tensor:
        """Map (b, p + t·h·w, heads·d) tokens to (b, p + t'·h'·w', heads, d).

        `stride` is in place of the pool's own, where patches that no kernel reads were left out.
        """
        if fast_cpu.is_untouched(self.conv):
            stride = stride or self.stride
            pooled = convolve_tokens(tokens, self.conv.weight, thw=thw, stride=stride)
        else:
            pooled = call_on_tokens(self.conv, tokens, thw=thw, channels=self.channels)
        return self.norm(pooled.unflatten(-1, (-1, self.channels)))


class PooledAttention(nn.Module):
    """Multi-head attention whose queries, keys and values are pooled over the grid first.

    Pooling q shrinks the block's output; pooling k and v only makes attention cheaper. A stride
    of 1 for q leaves the queries alone, without kernel or norm. The block joins the heads, whose
    number divides `channels`. The sides of the kernels are odd.
    """

    def __init__(
        self, channels: int, num_heads: int, *, q_stride: THW, kv_stride: THW, kernel: THW
    ) -> None:
        super().__init__()
        if channels % num_heads:
            raise ValueError(f"num_heads must divide channels {channels}, got {num_heads}")
        head_channels = channels // num_heads
        self.head_channels = head_channels
        self.q_stride = q_stride
        self.kv_stride = kv_stride
        self.kernel = kernel
        self.q = nn.Linear(channels, channels)
        self.k = nn.Linear(channels, channels)
        self.v = nn.Linear(channels, channels)
        self.pool_q = None
        if max(q_stride) > 1:
            self.pool_q = TokenPool(head_channels, kernel=kernel, stride=q_stride)
        self.pool_k = TokenPool(head_channels, kernel=kernel, stride=kv_stride)
        self.pool_v = TokenPool(head_channels, kernel=kernel, stride=kv_stride)

    def forward(self, tokens: Tensor, thw: THW, *, is_class_only: bool = False) -> Tensor:
        """Map (b, p + t·h·w, c) tokens to (b, p + t'·h'·w', c), sides pooled by the q stride.

        Where only the class tokens are wanted, they alone ask: (b, p, c).
        """
        pools = self._pool(tokens, thw, is_class_only=is_class_only)
        q, k, v = (pooled.transpose(1, 2) for pooled in pools)
        mixed = F.scaled_dot_product_attention(q, k, v)
        return mixed.transpose(1, 2).flatten(2)

    def class_attention(self, tokens: Tensor, thw: THW) -> Tensor:
        """Attention of the first class token to the patches, averaged over the heads.

        Args:
            tokens: (b, p + t·h·w, c) with at least one class token.

        Returns:
            (b, t', h', w') on the grid of the block's output; every key's share of attention stands
            at each of the places nearest to it, so it sums to more than one.
        """
        queries, keys, _ = self._pool(tokens, thw, is_class_only=True)
        logits = (queries[:, :1] * keys).sum(-1) * self.head_channels**-0.5
        num_prefix = tokens.shape[1] - thw[0] * thw[1] * thw[2]
        shares = logits.softmax(dim=1).mean(-1)[:, num_prefix:]
        shares = shares.unflatten(1, pooled_thw(thw, self.kv_stride))
        size = pooled_thw(thw, self.q_stride)
        return F.interpolate(shares[:, None], size=size, mode="nearest-exact")[:, 0]

    def _pool(
        self, tokens: Tensor, thw: THW, *, is_class_only: bool
    ) -> tuple[Tensor, Tensor, Tensor]:
        """Return (b, p + t'·h'·w', heads, d) queries, and (b, p + keys, heads, d) keys, values."""
        asking = tokens[:, : tokens.shape[1] - math.prod(thw)] if is_class_only else tokens
        is_fast, is_traced = fast_cpu.is_cpu_inference(tokens), fast_cpu.is_traced_inference()
        if (is_fast or is_traced) and fast_cpu.is_untouched(*self.children()):
            apply = fast_cpu.apply_in_parts if is_fast else (lambda tokens, layer: layer(tokens))
            q = apply(asking, self.q)
            tokens, read_thw, stride = keep_read(
                tokens, thw=thw, kernel=self.kernel, stride=self.kv_stride
            )
            k = self.pool_k(apply(tokens, self.k), thw=read_thw, stride=stride)
            v = self.pool_v(apply(tokens, self.v), thw=read_thw, stride=stride)
        else:
            q = self.q(asking)
            k, v = self.pool_k(self.k(tokens), thw=thw), self.pool_v(self.v(tokens), thw=thw)
        if self.pool_q is not None and not is_class_only:
            return self.pool_q(q, thw=thw), k, v
        q = q.unflatten(-1, (-1, self.head_channels))
        return (q if self.pool_q is None else self.pool_q.norm(q)), k, v


class Block(nn.Module):
    """Pool and mix tokens, then transform each; the grid it works on is the one that comes in.

    The arguments are as in `PooledAttention` and `MViT`. The skip path is pooled as the queries
    are, and the MLP changes the channels to `out_channels`.
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
        self.mlp = Mlp(channels, int(channels * mlp_ratio), out_channels)
        self.widen = nn.Linear(channels, out_channels) if out_channels != channels else None
        self.drop_path = DropPath(drop_path)

    def forward(self, grid: TokenGrid) -> TokenGrid:
        """Map a grid to one whose sides are divided by the q stride, rounded up."""
        thw = self.out_thw(grid.thw)
        tokens = grid.tokens
        is_fast = not self.training and fast_cpu.is_cpu_inference(tokens)
        if not (is_fast and fast_cpu.is_untouched(*self.children())):
            return grid.with_tokens(self._transform_parts(*self._mix(grid)), thw)
        size = (len(tokens), grid.num_prefix + math.prod(thw), self.mlp.contract.out_features)
        out = fast_cpu.fill_in_parts(
            lambda clips, out: self._fill(grid.with_tokens(clips), out),
            tokens,
            out=tokens.new_empty(size),
            at_once=fast_cpu.clips_at_once(tokens[0].numel()),
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

    @torch.no_grad()
    def fold_norms(self) -> None:
        """Move the norms' scales and shifts into the layers that read them: runtimes do not."""
        attention, mlp = self.attention, self.mlp
        readers = {
            self.norm_attention: (attention.q, attention.k, attention.v),
            self.norm_mlp: (mlp.expand,) if self.widen is None else (mlp.expand, self.widen),
        }
        for norm, layers in readers.items():
            for layer in layers:
                layer.bias.add_(layer.weight @ norm.bias)
                layer.weight.mul_(norm.weight)
            norm.weight.fill_(1.0)
            norm.bias.zero_()

    def class_tokens(self, grid: TokenGrid) -> Tensor:
        """Return the (b, p, c') class tokens that the block makes, and compute no patches."""
        tokens = self.norm_attention(grid.tokens)
        mixed = self.attention(tokens, grid.thw, is_class_only=True)
        return self._transform(grid.prefix, mixed)

    def _mix(self, grid: TokenGrid) -> tuple[Tensor, Tensor]:
        """Return the skip path and what attention mixed, both (b, p + t'·h'·w', c)."""
        mixed = self.attention(self.norm_attention(grid.tokens), grid.thw)
        if max(self.q_stride) == 1:
            return grid.tokens, mixed
        patches = pool_maximum(grid.patches, stride=self.q_stride)
        return torch.cat([grid.prefix, patches.flatten(1, 3)], dim=1), mixed

    def _transform_parts(self, skip: Tensor, mixed: Tensor) -> Tensor:
        """Transform all tokens; an exported graph does it a cacheful at a time, too."""
        count = -(-mixed.shape[1] // fast_cpu.tokens_at_once(mixed.shape[2]))
        if count == 1 or not (mixed.is_cpu and fast_cpu.is_traced_inference()):
            return self._transform(skip, mixed)
        parts = zip(skip.chunk(count, dim=1), mixed.chunk(count, dim=1), strict=True)
        return torch.cat([self._transform(*part) for part in parts], dim=1)

    def _transform(self, skip: Tensor, mixed: Tensor) -> Tensor:
        """Add what attention mixed to the skip path and transform each token alone."""
        tokens = skip + self.drop_path(self.project(mixed))
        normed = self.norm_mlp(tokens)
        skip = tokens if self.widen is None else self.widen(normed)
        return skip + self.drop_path(self.mlp(normed))

    def _fill(self, grid: TokenGrid, out: Tensor) -> None:
        """Write the block's tokens to `out`, a cacheful at a time."""
        flat = [tokens.flatten(0, 1) for tokens in (*self._mix(grid), out)]
        at_once = fast_cpu.tokens_at_once(flat[0].shape[1])
        fast_cpu.fill_in_parts(self._fill_transformed, *flat[:2], out=flat[2], at_once=at_once)

    def _fill_transformed(self, skip: Tensor, mixed: Tensor, out: Tensor) -> None:
        """Write what `_transform` makes of (n, c) tokens to `out`, without drop path."""
        tokens = fast_cpu.add_linear(skip, mixed, self.project)
        normed = self.norm_mlp(tokens)
        if self.widen is not None:
            tokens = fast_cpu.apply_linear(normed, self.widen, out=out)
        hidden = fast_cpu.gelu_linear(normed, self.mlp.expand)
        fast_cpu.add_linear(tokens, hidden, self.mlp.contract, out=out)
