"""Weights of the same architecture from elsewhere, under our names, and at our input size."""

import math
import re
from collections.abc import Mapping, Sequence

import torch.nn.functional as F
from torch import Tensor

from tokenselect.plan import THW

Renaming = Sequence[tuple[str, str]]

BLOCKS: Renaming = [  # alike in both; what comes before has named what differs
    (r"^(blocks\.\d+)\.norm1\.", r"\1.norm_attention."),
    (r"^(blocks\.\d+)\.norm2\.", r"\1.norm_mlp."),
    (r"^(blocks\.\d+)\.proj(?:ect)?\.", r"\1.widen."),
    (r"^(blocks\.\d+)\.attn\.", r"\1.attention."),
    (r"^(blocks\.\d+)\.mlp\.(?:0|fc1)\.", r"\1.mlp.expand."),
    (r"^(blocks\.\d+)\.mlp\.(?:3|fc2)\.", r"\1.mlp.contract."),
]
TORCHVISION: Renaming = [
    (r"^conv_proj\.", "patch."),
    (r"^pos_encoding\.class_token$", "positions.class_token"),
    (r"^pos_encoding\.class_pos$", "positions.class_position"),
    (r"^pos_encoding\.spatial_pos$", "positions.space"),
    (r"^pos_encoding\.temporal_pos$", "positions.time"),
    (r"^head\.1\.", "classifier."),
    (r"^(blocks\.\d+)\.attn\.project\.0\.", r"\1.project."),
    (r"^(blocks\.\d+)\.attn\.(pool_[qkv])\.pool\.", r"\1.attention.\2.conv."),
    (r"^(blocks\.\d+)\.attn\.(pool_[qkv])\.norm_act\.0\.", r"\1.attention.\2.norm."),
    *BLOCKS,
]
SLOWFAST: Renaming = [
    (r"^patch_embed\.(?:proj|patch_model)\.", "patch."),
    (r"^(?:cls_positional_encoding\.)?cls_token$", "positions.class_token"),
    (r"^(?:cls_positional_encoding\.)?pos_embed_class$", "positions.class_position"),
    (r"^(?:cls_positional_encoding\.)?pos_embed_spatial$", "positions.space"),
    (r"^(?:cls_positional_encoding\.)?pos_embed_temporal$", "positions.time"),
    (r"^norm_embed\.", "norm."),
    (r"^head\.proj(?:ection)?\.", "classifier."),
    (r"^(blocks\.\d+)\.attn\.proj\.", r"\1.project."),
    (r"^(blocks\.\d+)\.attn\.norm_([qkv])\.", r"\1.attention.pool_\2.norm."),
    (r"^(blocks\.\d+)\.attn\._attention_(pool_[qkv])\.pool\.", r"\1.attention.\2.conv."),
    (r"^(blocks\.\d+)\.attn\._attention_(pool_[qkv])\.norm\.", r"\1.attention.\2.norm."),
    (r"^(blocks\.\d+)\.attn\.(pool_[qkv])\.", r"\1.attention.\2.conv."),
    *BLOCKS,
]


def from_torchvision(
    state: Mapping[str, Tensor], *, grid_size: tuple[int, int] | None = None
) -> dict[str, Tensor]:
    """Turn the state dict of torchvision's `MViT` (first version) into one for ours.

    `grid_size` are rows and columns of its table of space, which it keeps flat; None for a square.
    """
    return _convert(state, TORCHVISION, grid_size)


def from_slowfast(
    state: Mapping[str, Tensor], *, grid_size: tuple[int, int] | None = None
) -> dict[str, Tensor]:
    """Turn the state dict of SlowFast's or PyTorchVideo's MViT (first version) into one for ours.

    PyTorchVideo and older SlowFast files keep q, k and v apart, newer ones in one layer; either
    serves. PyTorchVideo lists its poolings twice, under two names.
    """
    return _convert(state, SLOWFAST, grid_size)


def resize_positions(state: Mapping[str, Tensor], *, thw: THW) -> dict[str, Tensor]:
    """Interpolate the tables of space and time to a grid of size `thw`."""
    if not {"positions.space", "positions.time"} <= state.keys():
        return dict(state)
    space, time = resize_tables(state["positions.space"], state["positions.time"], thw)
    return {**state, "positions.space": space.contiguous(), "positions.time": time.contiguous()}


def resize_tables(space: Tensor, time: Tensor, thw: THW) -> tuple[Tensor, Tensor]:
    """Interpolate (h, w, c) and (t, c) tables to a grid of size `thw`; fitting ones stay."""
    t, h, w = thw
    if space.shape[:2] != (h, w):
        image = F.interpolate(space.permute(2, 0, 1)[None], size=(h, w), mode="bilinear")
        space = image[0].permute(1, 2, 0)
    if time.shape[0] != t:
        time = F.interpolate(time.t()[None], size=t, mode="linear")[0].t()
    return space, time


def _convert(
    state: Mapping[str, Tensor], renaming: Renaming, grid_size: tuple[int, int] | None
) -> dict[str, Tensor]:
    """Rename, take one projection to queries, keys and values apart, and shape the tables."""
    ours: dict[str, Tensor] = {}
    for name, tensor in state.items():
        for pattern, replacement in renaming:
            name, count = re.subn(pattern, replacement, name)
            if count:
                break
        if ".attention.qkv." not in name:
            ours[name] = tensor
            continue
        for letter, part in zip("qkv", tensor.chunk(3), strict=True):
            ours[name.replace(".qkv.", f".{letter}.")] = part
    return _shape_tables(ours, grid_size)


def _shape_tables(state: dict[str, Tensor], grid_size: tuple[int, int] | None) -> dict[str, Tensor]:
    """Give the tables our shapes: no leading ones, space as (h, w, c)."""
    for name in ("class_token", "class_position"):
        if f"positions.{name}" in state:
            state[f"positions.{name}"] = state[f"positions.{name}"].flatten()
    for name in ("space", "time"):
        if f"positions.{name}" in state:
            state[f"positions.{name}"] = state[f"positions.{name}"].flatten(0, -2)
    if "positions.space" in state:
        space = state["positions.space"]  # (h·w, c)
        side = math.isqrt(len(space))
        if grid_size is None and side * side != len(space):
            raise ValueError(f"its spatial table has {len(space)} entries, which is no square")
        state["positions.space"] = space.unflatten(0, grid_size or (side, side))
    return state
