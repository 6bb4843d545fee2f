"""Multiscale Vision Transformers, first version (Fan et al., ICCV 2021)."""

from tokenselect.backbones.mvit.model import MViT, mvit_b16, mvit_b16_32x3, mvit_mini
from tokenselect.backbones.mvit.weights import from_slowfast, from_torchvision, resize_positions

__all__ = [
    "MViT",
    "from_slowfast",
    "from_torchvision",
    "mvit_b16",
    "mvit_b16_32x3",
    "mvit_mini",
    "resize_positions",
]
