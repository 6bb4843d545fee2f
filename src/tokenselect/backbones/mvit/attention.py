"""Attention between pooled tokens (MViT paper, section 3.1)."""

import torch.nn.functional as F
from torch import Tensor, nn

from tokenselect.backbones.mvit.convolution import THW
from tokenselect.backbones.mvit.parts import is_cpu_inference
from tokenselect.backbones.mvit.pooling import TokenPool, pooled_thw
from tokenselect.backbones.mvit.products import apply_in_parts
from tokenselect.backbones.mvit.reading import keep_read


class PooledAttention(nn.Module):
    """Multi-head attention whose queries, keys and values are pooled over the grid first.

    Pooling q shrinks the block's output; pooling k and v only makes attention cheaper. A stride
    of 1 for q leaves the queries alone, without kernel or norm. The block joins the heads.

    Args:
        channels: channels of the tokens, in and out.
        num_heads: heads; divides channels.
        q_stride: pooling steps of the queries, hence of the output.
        kv_stride: pooling steps of the keys and values.
        kernel: sides of the pooling kernels, odd.
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
            self.pool_q = TokenPool(head_channels, kernel=kernel)
        self.pool_k = TokenPool(head_channels, kernel=kernel)
        self.pool_v = TokenPool(head_channels, kernel=kernel)

    def forward(self, tokens: Tensor, thw: THW) -> Tensor:
        """Map (b, p + t·h·w, c) tokens to (b, p + t'·h'·w', c), sides pooled by the q stride."""
        q = self._queries(tokens, thw).transpose(1, 2)  # (b, heads, p + t'·h'·w', d)
        k, v = (pooled.transpose(1, 2) for pooled in self._keys_and_values(tokens, thw))
        mixed = F.scaled_dot_product_attention(q, k, v)
        return mixed.transpose(1, 2).flatten(2)

    def class_attention(self, tokens: Tensor, thw: THW) -> Tensor:
        """Attention of the first class token to the patches, averaged over the heads.

        Args:
            tokens: (b, p + t·h·w, c) with at least one class token.
            thw: grid of the patches.

        Returns:
            (b, t', h', w') on the grid of the block's output; every key's share of attention stands
            at each of the places nearest to it, so it sums to more than one.
        """
        keys, _ = self._keys_and_values(tokens, thw)
        query = self._queries(tokens, thw)[:, 0]  # (b, heads, d)
        logits = (query[:, None] * keys).sum(-1) * self.head_channels**-0.5
        num_prefix = tokens.shape[1] - thw[0] * thw[1] * thw[2]
        shares = logits.softmax(dim=1).mean(-1)[:, num_prefix:]
        shares = shares.unflatten(1, pooled_thw(thw, self.kv_stride))
        size = pooled_thw(thw, self.q_stride)
        return F.interpolate(shares[:, None], size=size, mode="nearest-exact")[:, 0]

    def _keys_and_values(self, tokens: Tensor, thw: THW) -> tuple[Tensor, Tensor]:
        """Return (b, p + keys, heads, d) keys and values."""
        stride = self.kv_stride
        if is_cpu_inference(tokens):
            tokens, thw, stride = keep_read(tokens, thw=thw, kernel=self.kernel, stride=stride)
        k = self.pool_k(apply_in_parts(tokens, self.k), thw=thw, stride=stride)
        v = self.pool_v(apply_in_parts(tokens, self.v), thw=thw, stride=stride)
        return k, v

    def _queries(self, tokens: Tensor, thw: THW) -> Tensor:
        """Return (b, p + t'·h'·w', heads, d) queries."""
        q = apply_in_parts(tokens, self.q)
        if self.pool_q is None:
            return q.unflatten(-1, (-1, self.head_channels))
        return self.pool_q(q, thw=thw, stride=self.q_stride)
