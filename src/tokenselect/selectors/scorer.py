"""Scorer networks: candidate tokens in, one raw score each (paper, section 3.2)."""

import torch
from torch import Tensor, nn


class Scorer(nn.Module):
    """The paper's two fully connected layers on local ‖ global features, with C' = C/2.

    The global half is the same for every candidate and enters a last linear layer, so it moves all
    scores alike and the rescaling that follows takes it out again: it is kept because the paper has
    it. `ReleasedScorer` puts it before a non-linear layer, where it counts.

    Args:
        channels: width of the candidates.
    """

    def __init__(self, channels: int) -> None:
        super().__init__()
        hidden = max(1, channels // 2)
        self.local = nn.Linear(channels, hidden)
        self.activation = nn.GELU()
        self.score = nn.Linear(2 * hidden, 1)

    def forward(self, candidates: Tensor) -> Tensor:
        """Map (..., l, c) candidates to (..., l) scores."""
        features = _with_mean(self.local(candidates))
        return self.score(self.activation(features)).squeeze(-1)


class ReleasedScorer(nn.Module):
    """The network of the authors' released code, so that their checkpoints can be loaded.

    Args:
        channels: width of the candidates.
    """

    def __init__(self, channels: int) -> None:
        super().__init__()
        self.embed = nn.Sequential(nn.LayerNorm(channels), nn.Linear(channels, channels), nn.GELU())
        self.score = nn.Sequential(
            nn.Linear(channels, channels // 2),
            nn.GELU(),
            nn.Linear(channels // 2, channels // 4),
            nn.GELU(),
            nn.Linear(channels // 4, 1),
        )

    def forward(self, candidates: Tensor) -> Tensor:
        """Map (..., l, c) candidates to (..., l) scores."""
        local, shared = self.embed(candidates).chunk(2, dim=-1)
        mean = shared.mean(dim=-2, keepdim=True).expand_as(shared)
        return self.score(torch.cat([local, mean], dim=-1)).squeeze(-1)


def _with_mean(features: Tensor) -> Tensor:
    """Append the mean of all candidates to each: (..., l, c) to (..., l, 2c)."""
    mean = features.mean(dim=-2, keepdim=True)
    return torch.cat([features, mean.expand_as(features)], dim=-1)
