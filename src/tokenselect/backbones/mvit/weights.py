"""Weights of the same architecture from elsewhere, under our names."""

import math
import re
from collections.abc import Mapping

from torch import Tensor

_RENAMED = [
    (r"^conv_proj\.", "patch."),
    (r"^pos_encoding\.class_token$", "positions.class_token"),
    (r"^pos_encoding\.class_pos$", "positions.class_position"),
    (r"^pos_encoding\.spatial_pos$", "positions.space"),
    (r"^pos_encoding\.temporal_pos$", "positions.time"),
    (r"^head\.1\.", "classifier."),
    (r"^(blocks\.\d+)\.norm1\.", r"\1.norm_attention."),
    (r"^(blocks\.\d+)\.norm2\.", r"\1.norm_mlp."),
    (r"^(blocks\.\d+)\.project\.", r"\1.widen."),
    (r"^(blocks\.\d+)\.attn\.project\.0\.", r"\1.attention.project."),
    (r"^(blocks\.\d+)\.attn\.(pool_[qkv])\.pool\.", r"\1.attention.\2.conv."),
    (r"^(blocks\.\d+)\.attn\.(pool_[qkv])\.norm_act\.0\.", r"\1.attention.\2.norm."),
    (r"^(blocks\.\d+)\.attn\.", r"\1.attention."),
    (r"^(blocks\.\d+)\.mlp\.0\.", r"\1.mlp.expand."),
    (r"^(blocks\.\d+)\.mlp\.3\.", r"\1.mlp.contract."),
]


def from_torchvision(
    state: Mapping[str, Tensor], *, grid_size: tuple[int, int] | None = None
) -> dict[str, Tensor]:
    """Turn the state dict of torchvision's `MViT` (first version) into one for ours.

    Args:
        state: its state dict.
        grid_size: rows and columns of its table of space, which it keeps flat;
            None for a square.
    """
    renamed = {_rename(name): tensor for name, tensor in state.items()}
    for name in [name for name in renamed if ".qkv." in name]:
        parts = renamed.pop(name).chunk(3)
        for letter, part in zip("qkv", parts, strict=True):
            renamed[name.replace(".qkv.", f".{letter}.")] = part
    space = renamed["positions.space"]  # (h·w, c)
    side = math.isqrt(space.shape[0])
    renamed["positions.space"] = space.unflatten(0, grid_size or (side, side))
    return renamed


def _rename(name: str) -> str:
    for pattern, replacement in _RENAMED:
        name, count = re.subn(pattern, replacement, name)
        if count:
            break
    return name
