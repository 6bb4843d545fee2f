"""Weights of the same architecture under other names."""

import re
from collections.abc import Mapping

from torch import Tensor

RENAMED = [
    (r"^patch_embed\.proj\.", "embedding.project."),
    (r"^patch_embed\.norm\.", "embedding.norm."),
    (r"^head\.", "classifier."),
    (r"\.norm1\.", ".norm_attention."),
    (r"\.norm2\.", ".norm_mlp."),
    (r"\.attn\.proj\.", ".attention.project."),
    (r"\.attn\.relative_position_bias_table$", ".attention.bias_table"),
    (r"\.attn\.", ".attention."),
    (r"\.mlp\.0\.", ".mlp.expand."),
    (r"\.mlp\.3\.", ".mlp.contract."),
    (r"\.reduction\.", ".reduce."),
]


def from_torchvision(state: Mapping[str, Tensor]) -> dict[str, Tensor]:
    """Rename the weights of torchvision's `SwinTransformer3d` (swin3d_t, _s, _b) to ours.

    There, `features` alternates between stages and patch mergings; here, all blocks stand in one
    list and a merging belongs to the last block of its stage. The patch embedding, a convolution
    there, is a linear layer here.
    """
    starts = _first_blocks(state)
    renamed = {}
    for name, weight in state.items():
        if name.endswith("relative_position_index"):
            continue
        renamed[_rename(name, starts)] = (
            weight.flatten(1) if name == "patch_embed.proj.weight" else weight
        )
    return renamed


def _first_blocks(state: Mapping[str, Tensor]) -> dict[int, int]:
    """Map each even index of `features`, a stage, to our index of its first block."""
    found = (re.match(r"features\.(\d+)\.(\d+)\.norm1\.weight", name) for name in state)
    depths: dict[int, int] = {}
    for match in filter(None, found):
        depths[int(match[1])] = max(depths.get(int(match[1]), 0), int(match[2]) + 1)
    starts, total = {}, 0
    for stage in sorted(depths):
        starts[stage] = total
        total += depths[stage]
    return starts


def _rename(name: str, starts: Mapping[int, int]) -> str:
    if match := re.match(r"features\.(\d+)\.(\d+\.)?(.*)", name):
        stage, block, rest = int(match[1]), match[2], match[3]
        if block is None:  # a merging
            name = f"blocks.{starts[stage + 1] - 1}.merging.{rest}"
        else:
            name = f"blocks.{starts[stage] + int(block[:-1])}.{rest}"
    for pattern, ours in RENAMED:
        name = re.sub(pattern, ours, name)
    return name
