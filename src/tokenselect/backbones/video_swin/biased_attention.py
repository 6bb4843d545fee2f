"""Attention with a learned bias that windows share, without keeping scores for the backward pass.

torch's fused attention gives no gradient to its mask on a CPU; its plain attention does, but keeps
the scores of all windows. Here the backward pass makes them again, a portion at a time.
"""

from typing import Any

import torch
import torch.nn.functional as F
from torch import Tensor
from torch.autograd.function import once_differentiable

from tokenselect.backbones.fast_cpu import split_portions


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
    """Fused attention whose backward pass makes the scores anew."""

    @staticmethod
    def forward(ctx: Any, q: Tensor, k: Tensor, v: Tensor, bias: Tensor) -> Tensor:
        mixed = F.scaled_dot_product_attention(q, k, v, attn_mask=bias.detach()[None])
        ctx.save_for_backward(q, k, v, bias, mixed)
        return mixed

    @staticmethod
    @once_differentiable
    def backward(ctx: Any, grad: Tensor) -> tuple[Tensor, ...]:
        q, k, v, bias, mixed = ctx.saved_tensors
        grad_q, grad_k, grad_v = torch.empty_like(q), torch.empty_like(k), torch.empty_like(v)
        grad_bias = torch.zeros_like(bias)
        # a head at a time, a few windows at a time: four matrices of scores fit the cache
        for head in range(len(bias)):
            wholes = (whole[:, head] for whole in (q, k, v, mixed, grad, grad_q, grad_k, grad_v))
            parts = (split_portions(whole, width=4 * bias[head].numel()) for whole in wholes)
            for part in zip(*parts, strict=True):
                grad_bias[head] += _differentiate(bias[head], *part)
        return grad_q, grad_k, grad_v, grad_bias


def _differentiate(
    bias: Tensor,
    q: Tensor,
    k: Tensor,
    v: Tensor,
    mixed: Tensor,
    grad: Tensor,
    grad_q: Tensor,
    grad_k: Tensor,
    grad_v: Tensor,
) -> Tensor:
    """Write the gradients of a head's (windows, n, d) q, k and v; return that of its bias."""
    scale = q.shape[-1] ** -0.5
    weights = torch.baddbmm(bias, q, k.mT, alpha=scale).softmax(dim=-1)  # (windows, n, n)
    grad_v.copy_(torch.bmm(weights.mT, grad))
    grad_scores = torch.bmm(grad, v.mT)
    grad_scores.sub_((grad * mixed).sum(dim=-1, keepdim=True)).mul_(weights)
    grad_q.copy_(torch.bmm(grad_scores, k)).mul_(scale)
    grad_k.copy_(torch.bmm(grad_scores.mT, q)).mul_(scale)
    return grad_scores.sum(dim=0)
