"""The exact smoothed arg max: Top-K for k = 1 needs no counting (paper, section 3.3, anchors).

Candidate l is kept when it is the largest. With the threshold t as its own noisy score and
a_i = s_i - t in units of the noise, q_i = Φ(-a_i) and the hazard r_i = φ(a_i) / q_i,

    Y[l] = ∫ φ(a_l) Π_{i≠l} q_i dt = ∫ r_l · Π_i q_i dt.

A shift of s_d changes Π_i q_i by -r_d and r_d by r_d (r_d - a_d), which gives the gradient.
Every a_i is at most the nodes' reach, so no q_i underflows and the hazards stay finite.
"""

import math
from collections.abc import Iterator

import torch
from torch import Tensor

from tokenselect.ops.threshold_nodes import threshold_nodes

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
    """Give the chance of every candidate to be the largest under unit noise.

    Args:
        scores: (b, l) float32 or float64, in units of the noise.

    Returns:
        (b, 1, l) indicator.
    """
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
