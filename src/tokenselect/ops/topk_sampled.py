"""Perturbed Top-K by sampling: the mean of many noisy hard Top-Ks (paper, section 3.2)."""

from typing import Any

import torch
from torch import Tensor

from tokenselect.ops.topk_hard import rank_topk


class _SampledTopK(torch.autograd.Function):
    """Mean one-hot of noisy Top-Ks; the whole Jacobian E[Y Zᵀ]/σ is applied, never built."""

    @staticmethod
    def forward(ctx: Any, scores: Tensor, sigma: Tensor, noise: Tensor, k: int) -> Tensor:
        num_samples, num_candidates = noise.shape[0], scores.shape[-1]
        indices = rank_topk(scores + sigma * noise, k).movedim(0, -1)  # (..., k, s)
        ctx.save_for_backward(noise, indices, sigma)
        share = scores.new_full((), 1.0 / num_samples).expand(indices.shape)
        indicator = scores.new_zeros(*indices.shape[:-1], num_candidates)
        return indicator.scatter_add(-1, indices, share)

    @staticmethod
    def backward(ctx: Any, *grads: Tensor) -> tuple[Tensor, None, None, None]:
        noise, indices, sigma = ctx.saved_tensors
        worth = grads[0].gather(-1, indices).sum(dim=-2).movedim(-1, 0)  # (s, ...)
        grad = (noise * worth.unsqueeze(-1)).mean(dim=0)
        return torch.where(sigma > 0, grad / sigma, 0.0), None, None, None


def sampled_topk(
    scores: Tensor,
    k: int,
    sigma: Tensor,
    *,
    num_samples: int = 500,
    generator: torch.Generator | None = None,
) -> Tensor:
    """Average the hard Top-K of `num_samples` Gaussian perturbations of the scores.

    Args:
        scores: (..., l) one score a candidate.
        k: how many to keep, 1 to l.
        sigma: 0-d standard deviation of the noise.
        num_samples: how many perturbations are averaged.
        generator: source of the noise; torch's global one when None.

    Returns:
        (..., k, l) indicator, differentiable in `scores`.
    """
    shape = (num_samples, *scores.shape)
    noise = torch.randn(shape, dtype=scores.dtype, device=scores.device, generator=generator)
    return _SampledTopK.apply(scores, sigma, noise, k)
