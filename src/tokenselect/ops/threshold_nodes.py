"""Where the exact Top-K samples its threshold: evenly spaced nodes around the k-th score.

The threshold t, the k-th largest of the noisy scores, is integrated out. Its density and everything
multiplied with it are entire functions that vanish at both ends, and on these evenly spaced nodes
converge faster than any power of the spacing: half the nodes of a Gauss-Legendre rule do.
"""

import math
from statistics import NormalDist

import torch
from torch import Tensor

_NORMAL = NormalDist()


def threshold_deviation(num_candidates: int, k: int) -> float:
    """Give the standard deviation of the k-th largest of equal candidates under unit noise.

    No scores make the threshold's density narrower than equal ones do, so this is the finest detail
    that the nodes have to resolve.
    """
    share = k / num_candidates
    density = _NORMAL.pdf(_NORMAL.inv_cdf(share))
    return math.sqrt(share * (1 - share) / num_candidates) / density


def threshold_nodes(scores: Tensor, k: int) -> tuple[Tensor, float]:
    """Space the nodes so that the quadrature is exact to the scores' precision.

    The k-th largest of the noisy scores is no further from the k-th score than the largest
    perturbation: 5.5 deviations are left with a chance of 4e-8 a candidate, 7.5 with 6e-14.

    Args:
        scores: (..., l) float32 or float64; only its size and dtype matter.
        k: how many are kept, 1 to l - 1.

    Returns:
        (q,) offsets from the k-th score in units of the noise, and the distance between them.
    """
    reach, fineness = (7.5, 0.7) if scores.dtype == torch.float64 else (5.5, 1.0)
    finest = fineness * threshold_deviation(scores.shape[-1], k)
    num_steps = math.ceil(2 * reach / finest)
    nodes = torch.linspace(-reach, reach, num_steps + 1, dtype=scores.dtype, device=scores.device)
    return nodes, 2 * reach / num_steps
