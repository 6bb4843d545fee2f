"""Relaxations: what stands in for hard Top-K while training, so that scores get a gradient."""

import torch
from torch import Tensor, nn

from tokenselect.ops.topk import gumbel_topk, perturbed_topk


class Relaxation(nn.Module):
    """Maps scores (..., l) and k to an indicator (..., k, l); off, hard Top-K is used."""

    is_active = True

    def forward(self, scores: Tensor, k: int) -> Tensor:
        """Give the indicator."""
        raise NotImplementedError


class PerturbedTopK(Relaxation):
    """The paper's smoothed Top-K (section 3.2): σ is set from outside and falls to 0.

    σ is kept as a tensor beside a flag, so that a compiled model serves a whole schedule.
    """

    sigma: Tensor

    def __init__(self, *, sigma: float, method: str = "auto", num_samples: int = 500) -> None:
        super().__init__()
        self.method = method
        self.num_samples = num_samples
        self.register_buffer("sigma", torch.zeros(()), persistent=False)
        self.set_sigma(sigma)

    def set_sigma(self, sigma: float) -> None:
        """Change σ; 0 turns the relaxation off."""
        if not 0 <= sigma < float("inf"):
            raise ValueError(f"sigma must be 0 or more, got {sigma}")
        self.is_active = sigma > 0
        if not self.sigma.is_meta:
            self.sigma.fill_(sigma)

    def forward(self, scores: Tensor, k: int) -> Tensor:
        """Give the smoothed indicator."""
        sigma = self.sigma.to(scores.dtype)
        return perturbed_topk(scores, k, sigma, method=self.method, num_samples=self.num_samples)

    def extra_repr(self) -> str:
        """Show the method in `print(model)`."""
        return f"method={self.method!r}"


class GumbelTopK(Relaxation):
    """The Gumbel-softmax baseline of Table 1."""

    def forward(self, scores: Tensor, k: int) -> Tensor:
        """Give a hard indicator of noisy scores with the softmax's gradient."""
        return gumbel_topk(scores, k)
