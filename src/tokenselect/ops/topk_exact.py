"""The exact perturbed Top-K: the expectation of section 3.2 of the paper, computed, not sampled.

Forward and backward are one operator each, opaque to `torch.compile` and `torch.export`, which
would unroll the walk over the candidates. Between them only the scores and the indicator are kept.
"""

import math
from collections.abc import Iterator
from typing import Any

import torch
from torch import Tensor
from torch.nn.functional import pad

from tokenselect.ops.noise import in_units_of_noise, positive
from tokenselect.ops.threshold import threshold_nodes, walk_gradient, walk_indicator

_MAX_ELEMENTS = 2**20  # of (b, q, l) at once: a few megabytes whatever the batch and the nodes


def _hazards(scores: Tensor) -> Iterator[tuple[slice, Tensor, Tensor, Tensor]]:
    """Walk over the rows in chunks that fit the cache.

    Yields:
        The rows, a (r, q, l), r (r, q, l) and the weight Π_i q_i dt (r, q, 1) of every node.
    """
    nodes, spacing = threshold_nodes(scores, 1)
    centred = scores - scores.amax(dim=-1, keepdim=True)
    num_rows = max(1, _MAX_ELEMENTS // (nodes.numel() * scores.shape[-1]))
    for start in range(0, len(scores), num_rows):
        rows = slice(start, start + num_rows)
        above = centred[rows].unsqueeze(1) - nodes.unsqueeze(1)  # (r, q, l)
        below = torch.erfc(above * math.sqrt(0.5)).mul_(0.5)
        density = (above * above).mul_(-0.5).exp_().mul_(1 / math.sqrt(2 * math.pi))
        weights = below.prod(dim=-1, keepdim=True).mul_(spacing)
        yield rows, above, density.div_(below), weights


def top1_indicator(scores: Tensor) -> Tensor:
    """Give the (b, 1, l) chances to be the largest of (b, l) scores in units of the noise."""
    indicator = torch.empty_like(scores, memory_format=torch.contiguous_format)
    for rows, _, hazards, weights in _hazards(scores):
        indicator[rows] = hazards.mul_(weights).sum(dim=1)
    return indicator.unsqueeze(1)


def top1_gradient(grad: Tensor, scores: Tensor) -> Tensor:
    """Apply the transposed Jacobian of `top1_indicator` to `grad` (b, 1, l); returns (b, l)."""
    result = torch.empty_like(scores, memory_format=torch.contiguous_format)
    for rows, above, hazards, weights in _hazards(scores):
        expected = (grad[rows] * hazards).sum(dim=-1, keepdim=True)
        change = (hazards - above).mul_(grad[rows]).sub_(expected)
        result[rows] = change.mul_(hazards).mul_(weights).sum(dim=1)
    return result


@torch.library.custom_op("tokenselect::exact_topk", mutates_args=())
def exact_topk(scores: Tensor, sigma: Tensor, k: int) -> Tensor:
    """Give the expected Top-K indicator under Gaussian noise, with its exact gradient.

    Cost grows with the smaller of k and l - k: to keep most is to drop few.

    Args:
        scores: (b, l) float32 or float64.
        sigma: 0-d standard deviation of the noise; 1 is taken in place of 0.
        k: how many to keep, 1 to l.

    Returns:
        (b, k, l) indicator, differentiable in `scores`.
    """
    num_dropped = scores.shape[-1] - k
    if num_dropped == 0:
        return torch.eye(k, dtype=scores.dtype, device=scores.device).repeat(len(scores), 1, 1)
    if k <= num_dropped:
        units = in_units_of_noise(scores, sigma, k)
        return top1_indicator(units) if k == 1 else walk_indicator(units, k, of_taken=True)
    units = in_units_of_noise(-scores, sigma, num_dropped)
    if num_dropped == 1:
        return skew(_passed_by_one(top1_indicator(units)))
    return skew(walk_indicator(units, num_dropped, of_taken=False))


@torch.library.custom_op("tokenselect::exact_topk_gradient", mutates_args=())
def exact_topk_gradient(grad: Tensor, scores: Tensor, sigma: Tensor, indicator: Tensor) -> Tensor:
    """Apply the transposed Jacobian of `exact_topk` to `grad` (b, k, l); returns (b, l).

    The indicator's rows sum to 1, so a constant has no gradient: each row of `grad` is taken from
    its mean under the indicator, which leaves nothing to round where the choice is certain.
    """
    k, num_dropped = grad.shape[1], grad.shape[2] - grad.shape[1]
    if num_dropped == 0:
        return torch.zeros_like(scores)
    grad = grad - (grad * indicator).sum(dim=-1, keepdim=True)
    if k <= num_dropped:
        units = in_units_of_noise(scores, sigma, k)
        change = (
            top1_gradient(grad, units) if k == 1 else walk_gradient(grad, units, k, of_taken=True)
        )
        return change.div_(positive(sigma))
    units, grad = in_units_of_noise(-scores, sigma, num_dropped), skew(grad)
    if num_dropped == 1:
        change = top1_gradient(_passed_by_one_gradient(grad), units)
    else:
        change = walk_gradient(grad, units, num_dropped, of_taken=False)
    return change.div_(-positive(sigma))


def _passed_by_one(dropped: Tensor) -> Tensor:
    """From where the one dropped is, (b, 1, l), find who is passed before and after it.

    Returns:
        (b, 2, l) the chances to be before the dropped one and to be behind it.
    """
    behind = pad(dropped.cumsum(dim=-1)[..., :-1], (1, 0))
    before = pad(dropped.flip(-1).cumsum(dim=-1)[..., :-1], (1, 0)).flip(-1)
    return torch.cat((before, behind), dim=1)


def _passed_by_one_gradient(grad: Tensor) -> Tensor:
    """Apply the transposed `_passed_by_one` to `grad` (b, 2, l); returns (b, 1, l)."""
    before, behind = grad.split(1, dim=1)
    after_it = pad(behind.flip(-1).cumsum(dim=-1)[..., :-1], (1, 0)).flip(-1)
    return after_it.add_(pad(before.cumsum(dim=-1)[..., :-1], (1, 0)))


def skew(band: Tensor) -> Tensor:
    """Name a column's entries by column - row: who has c dropped before it is kept as l - c.

    Of a (b, m, l) band, entries with column - row outside of 0..l - m are not looked at. Row l - c
    of the (b, l - m + 1, l) result holds row c of `band` in column l, and 0 elsewhere.
    """
    num_rows, height, width = band.shape
    new_height = width - height + 1
    wide = pad(band.flatten(1), (0, height)).view(num_rows, height, width + 1)
    wide = pad(wide[:, :, :new_height].mT, (0, width + 1 - height))
    cells = wide.flatten(1)[:, : new_height * width].contiguous()
    return cells.view(num_rows, new_height, width)


@exact_topk.register_fake
def _(scores: Tensor, sigma: Tensor, k: int) -> Tensor:
    return scores.new_empty(scores.shape[0], k, scores.shape[1])


@exact_topk_gradient.register_fake
def _(grad: Tensor, scores: Tensor, sigma: Tensor, indicator: Tensor) -> Tensor:
    return scores.new_empty(scores.shape)


def _save(ctx: Any, inputs: tuple[Tensor, Tensor, int], output: Tensor) -> None:
    ctx.save_for_backward(inputs[0], inputs[1], output)


def _backward(ctx: Any, grad: Tensor) -> tuple[Tensor, None, None]:
    return exact_topk_gradient(grad, *ctx.saved_tensors), None, None


exact_topk.register_autograd(_backward, setup_context=_save)
