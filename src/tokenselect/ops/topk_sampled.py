"""Perturbed Top-K by sampling: the mean of many noisy hard Top-Ks (paper, section 3.2).

No one-hot of a sample is ever built: a sample is its k indices, the indicator a sum scattered to
them, and the whole Jacobian E[Y Zᵀ]/σ meets the upstream gradient G sample by sample,

    ds[d] = 1/(nσ) Σ_n Z[n, d] · (worth of sample n),    worth = Σ_k G[k, y(n, k)].

Samples are worked off in chunks. The noise is not stored but drawn again, from its seed, in the
backward pass; that seed comes from the generator, so a recomputed forward pass sees the same noise.
"""

from collections.abc import Iterator
from typing import Any

import torch
from torch import Tensor

from tokenselect.ops.noise import in_units_of_noise, positive
from tokenselect.ops.topk_hard import rank_topk

_MAX_ELEMENTS = 2**18  # of (b, samples, l) at once: a few megabytes whatever the number of samples


def sampled_topk(
    scores: Tensor,
    sigma: Tensor,
    k: int,
    *,
    num_samples: int = 500,
    generator: torch.Generator | None = None,
    antithetic: bool = False,
    control_variate: bool = False,
    only_diagonal: bool = False,
) -> Tensor:
    """Average the hard Top-K of `num_samples` Gaussian perturbations of (b, l) scores.

    The options are those of `perturbed_topk`. Antithetic pairs need an even `num_samples` and have
    the control variate's effect already. `only_diagonal` lets a candidate's score answer only for
    its own column of the indicator, as the paper's released code does; that is biased.

    Returns:
        (b, k, l) indicator, differentiable in `scores`.
    """
    if num_samples < 1:
        raise ValueError(f"num_samples must be at least 1, got {num_samples}")
    if antithetic and num_samples % 2:
        raise ValueError(f"num_samples must be even for antithetic pairs, got {num_samples}")
    device = "cpu" if generator is None else generator.device
    seed = torch.randint(2**62, (), generator=generator, device=device)
    indicator, _ = sampled_indicator(
        scores, sigma, seed, k, num_samples, antithetic, control_variate, only_diagonal
    )
    return indicator


def _noise(scores: Tensor, seed: Tensor, num_samples: int, antithetic: bool) -> Iterator[Tensor]:
    """Draw the perturbations of the seed, (b, samples, l) a chunk."""
    generator = torch.Generator(device=scores.device).manual_seed(int(seed))
    signs = 2 if antithetic else 1
    draws = num_samples // signs
    chunk = max(1, _MAX_ELEMENTS // max(1, signs * scores.numel()))
    for start in range(0, draws, chunk):
        shape = (scores.shape[0], min(chunk, draws - start), scores.shape[1])
        noise = torch.randn(shape, dtype=scores.dtype, device=scores.device, generator=generator)
        yield torch.cat((noise, -noise), dim=1) if antithetic else noise


def _choose(noisy: Tensor, k: int) -> Tensor:
    """Find the k largest of (b, samples, l), in input order; noise leaves no ties to break."""
    if k == 1:
        return noisy.argmax(dim=-1, keepdim=True)
    return noisy.topk(k, dim=-1, sorted=False).indices.sort(dim=-1).values


@torch.library.custom_op("tokenselect::sampled_indicator", mutates_args=())
def sampled_indicator(
    scores: Tensor,
    sigma: Tensor,
    seed: Tensor,
    k: int,
    num_samples: int,
    antithetic: bool,
    control_variate: bool,
    only_diagonal: bool,
) -> tuple[Tensor, Tensor]:
    """Give the mean indicator (b, k, l) and what each sample kept, (b, k, num_samples) int32."""
    num_rows, num_candidates = scores.shape
    units = in_units_of_noise(scores, sigma, k).unsqueeze(1)
    indicator = scores.new_zeros(num_rows, k, num_candidates)
    kept = scores.new_empty((num_rows, k, num_samples), dtype=torch.int32)
    start = 0
    for noise in _noise(scores, seed, num_samples, antithetic):
        indices = _choose(noise.add_(units), k).mT  # (b, k, samples)
        indicator.scatter_add_(-1, indices, scores.new_ones(()).expand(indices.shape))
        kept[..., start : start + indices.shape[-1]] = indices
        start += indices.shape[-1]
    return indicator.div_(num_samples), kept


@torch.library.custom_op("tokenselect::sampled_gradient", mutates_args=())
def sampled_gradient(
    grad: Tensor,
    scores: Tensor,
    sigma: Tensor,
    seed: Tensor,
    kept: Tensor,
    antithetic: bool,
    control_variate: bool,
    only_diagonal: bool,
) -> Tensor:
    """Apply the samples' transposed Jacobian, or its diagonal, to `grad` (b, k, l)."""
    num_samples = kept.shape[-1]
    product = torch.zeros_like(grad if only_diagonal else scores)
    baseline: Tensor | float = 0.0
    if control_variate:  # the worth of the unperturbed choice, (b, 1)
        baseline = grad.gather(-1, rank_topk(scores, grad.shape[1]).unsqueeze(-1)).sum(dim=1)
    start = 0
    for noise in _noise(scores, seed, num_samples, antithetic):
        indices = kept[..., start : start + noise.shape[1]].long()  # (b, k, samples)
        if only_diagonal:
            product.scatter_add_(-1, indices, noise.gather(-1, indices.mT).mT)
        else:
            worth = grad.gather(-1, indices).sum(dim=1).sub_(baseline)  # (b, samples)
            product += noise.mul_(worth.unsqueeze(-1)).sum(dim=1)
        start += noise.shape[1]
    if only_diagonal:
        product = product.mul_(grad).sum(dim=1)
    return product.div_(num_samples * positive(sigma))


@sampled_indicator.register_fake
def _(scores: Tensor, _: Tensor, __: Tensor, k: int, num_samples: int, *options: bool) -> Any:
    num_rows, num_candidates = scores.shape
    kept = scores.new_empty((num_rows, k, num_samples), dtype=torch.int32)
    return scores.new_empty(num_rows, k, num_candidates), kept


@sampled_gradient.register_fake
def _(grad: Tensor, scores: Tensor, *others: Any) -> Tensor:
    return scores.new_empty(scores.shape)


def _save(ctx: Any, inputs: tuple[Any, ...], output: tuple[Tensor, Tensor]) -> None:
    scores, sigma, seed, _, _, *ctx.options = inputs
    ctx.save_for_backward(scores, sigma, seed, output[1])


def _backward(ctx: Any, grad: Tensor, _: Tensor | None) -> tuple[Tensor | None, ...]:
    return (sampled_gradient(grad, *ctx.saved_tensors, *ctx.options), *[None] * 7)


sampled_indicator.register_autograd(_backward, setup_context=_save)
