"""Layers that both backbones are built of."""

import torch
import torch.nn.functional as F
from torch import Tensor, nn


class DropPath(nn.Module):
    """Leave a residual branch out for some clips of a batch in training (stochastic depth).

    The branches of the others grow by 1 / (1 - drop_prob).
    """

    def __init__(self, drop_prob: float) -> None:
        super().__init__()
        if not 0 <= drop_prob < 1:
            raise ValueError(f"drop_prob must be in [0, 1), got {drop_prob}")
        self.drop_prob = drop_prob

    def forward(self, branch: Tensor) -> Tensor:
        """Scale each clip of (b, ..., c) by 0 or 1 / (1 - drop_prob)."""
        if not self.training or self.drop_prob == 0:
            return branch
        shape = (branch.shape[0],) + (1,) * (branch.ndim - 1)
        kept = torch.empty(shape, dtype=branch.dtype, device=branch.device)
        return branch * (kept.bernoulli_(1 - self.drop_prob) / (1 - self.drop_prob))


class Mlp(nn.Module):
    """Two linear layers around a GELU; the second may change the number of channels."""

    def __init__(self, channels: int, hidden: int, out_channels: int) -> None:
        super().__init__()
        self.expand = nn.Linear(channels, hidden)
        self.contract = nn.Linear(hidden, out_channels)

    def forward(self, tokens: Tensor) -> Tensor:
        """Map (..., c) to (..., c')."""
        return self.contract(F.gelu(self.expand(tokens)))


def init_linear(module: nn.Module) -> None:
    """Start a linear layer as vision transformers do; other modules stay as they are."""
    if isinstance(module, nn.Linear):
        nn.init.trunc_normal_(module.weight, std=0.02)
        if module.bias is not None:
            nn.init.zeros_(module.bias)


def init_carrying(*layers: nn.Module | None) -> None:
    """Start linear layers that the tokens themselves go through, not a branch beside them.

    They keep their size. At the usual 0.02 a narrow model shrinks them at every stage (16 channels:
    to 0.08), and the norms behind blow the gradients up by as much: a small MViT then stays at
    chance for thousands of clips.
    """
    for layer in layers:
        if isinstance(layer, nn.Linear):
            nn.init.trunc_normal_(layer.weight, std=layer.in_features**-0.5)


def check_video(video: Tensor) -> None:
    """Refuse what is not a batch of (b, 3, frames, height, width) clips."""
    if video.ndim != 5 or video.shape[1] != 3:
        raise ValueError(f"video must be (b, 3, frames, height, width), got {tuple(video.shape)}")
