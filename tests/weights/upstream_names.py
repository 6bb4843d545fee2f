"""State dicts under other frameworks' names and shapes, written out from one of our models.

The names and shapes were read from the public sources of SlowFast, PyTorchVideo,
Video-Swin-Transformer, mmaction2 and the paper's authors. They are spelled out here the other way
round and without the package's own tables, so that a slip in either shows.
"""

import torch
from torch import Tensor, nn

State = dict[str, Tensor]


def _pair(state: State, theirs: str, ours: str) -> State:
    """Copy a layer's weight and, if it has one, its bias."""
    kinds = [kind for kind in ("weight", "bias") if f"{ours}.{kind}" in state]
    return {f"{theirs}.{kind}": state[f"{ours}.{kind}"].clone() for kind in kinds}


def slowfast(model: nn.Module, *, is_fused: bool = True) -> State:
    """MViT as SlowFast saves it; `is_fused` keeps q, k and v in one layer."""
    ours = {name: value.detach() for name, value in model.state_dict().items()}
    theirs = _pair(ours, "patch_embed.proj", "patch")
    theirs["cls_token"] = ours["positions.class_token"][None, None]
    theirs["pos_embed_class"] = ours["positions.class_position"][None, None]
    theirs["pos_embed_spatial"] = ours["positions.space"].flatten(0, 1)[None]
    theirs["pos_embed_temporal"] = ours["positions.time"][None]
    for index in range(len(model.blocks)):
        block = f"blocks.{index}"
        theirs |= _pair(ours, f"{block}.norm1", f"{block}.norm_attention")
        theirs |= _pair(ours, f"{block}.norm2", f"{block}.norm_mlp")
        theirs |= _pair(ours, f"{block}.mlp.fc1", f"{block}.mlp.expand")
        theirs |= _pair(ours, f"{block}.mlp.fc2", f"{block}.mlp.contract")
        theirs |= _pair(ours, f"{block}.proj", f"{block}.widen")
        theirs |= _pair(ours, f"{block}.attn.proj", f"{block}.project")
        theirs |= _qkv(ours, block, is_fused)
        for letter in "qkv":
            pool = f"{block}.attention.pool_{letter}"
            theirs |= _pair(ours, f"{block}.attn.pool_{letter}", f"{pool}.conv")
            theirs |= _pair(ours, f"{block}.attn.norm_{letter}", f"{pool}.norm")
    return theirs | _pair(ours, "norm", "norm") | _pair(ours, "head.projection", "classifier")


def _qkv(ours: State, block: str, is_fused: bool) -> State:
    apart: State = {}
    for letter in "qkv":
        apart |= _pair(ours, f"{block}.attn.{letter}", f"{block}.attention.{letter}")
    if not is_fused:
        return apart
    return {
        f"{block}.attn.qkv.{kind}": torch.cat([apart[f"{block}.attn.{x}.{kind}"] for x in "qkv"])
        for kind in ("weight", "bias")
    }


def pytorchvideo(model: nn.Module, *, is_fused: bool = False) -> State:
    """MViT as PyTorchVideo saves it: every pooling under two names."""
    theirs: State = {}
    for name, value in slowfast(model, is_fused=is_fused).items():
        if name.startswith(("cls_token", "pos_embed")):
            name = f"cls_positional_encoding.{name}"
        name = name.replace("patch_embed.proj.", "patch_embed.patch_model.")
        name = name.replace("head.projection.", "head.proj.")
        if name.startswith("norm."):
            name = f"norm_embed.{name[5:]}"
        theirs[name] = value
        for letter in "qkv":
            for part in ("pool", "norm"):
                if f".attn.{part}_{letter}." in name:
                    twin = f".attn._attention_pool_{letter}.{part}."
                    theirs[name.replace(f".attn.{part}_{letter}.", twin)] = value
    return theirs


def video_swin(model: nn.Module) -> State:
    """Video Swin's backbone as its authors save it, without classifier."""
    ours = {name: value.detach() for name, value in model.state_dict().items()}
    theirs = _pair(ours, "patch_embed.proj", "embedding.project")
    patch = theirs["patch_embed.proj.weight"]
    theirs["patch_embed.proj.weight"] = patch.reshape(len(patch), 3, *model.embedding.patch)
    theirs |= _pair(ours, "patch_embed.norm", "embedding.norm")
    ends = [*model.stage_starts[1:], len(model.blocks)]
    for stage, (start, end) in enumerate(zip(model.stage_starts, ends, strict=True)):
        for index in range(start, end):
            block, layer = f"blocks.{index}", f"layers.{stage}.blocks.{index - start}"
            theirs |= _pair(ours, f"{layer}.norm1", f"{block}.norm_attention")
            theirs |= _pair(ours, f"{layer}.norm2", f"{block}.norm_mlp")
            theirs |= _pair(ours, f"{layer}.mlp.fc1", f"{block}.mlp.expand")
            theirs |= _pair(ours, f"{layer}.mlp.fc2", f"{block}.mlp.contract")
            theirs |= _pair(ours, f"{layer}.attn.qkv", f"{block}.attention.qkv")
            theirs |= _pair(ours, f"{layer}.attn.proj", f"{block}.attention.project")
            table = ours[f"{block}.attention.bias_table"]
            theirs[f"{layer}.attn.relative_position_bias_table"] = table
            theirs[f"{layer}.attn.relative_position_index"] = torch.zeros(9, 9, dtype=torch.long)
        theirs |= _pair(
            ours, f"layers.{stage}.downsample.reduction", f"blocks.{end - 1}.merging.reduce"
        )
        theirs |= _pair(ours, f"layers.{stage}.downsample.norm", f"blocks.{end - 1}.merging.norm")
    return theirs | _pair(ours, "norm", "norm")


def mmaction(model: nn.Module, *, norm: str = "norm") -> State:
    """Video Swin with its head as mmaction2 and its forks save it; version 1 says `norm3`."""
    backbone = {name.replace("norm.", f"{norm}.", name.startswith("norm.")): value
                for name, value in video_swin(model).items()}  # fmt: skip
    theirs = {f"backbone.{name}": value for name, value in backbone.items()}
    return theirs | _pair(model.state_dict(), "cls_head.fc_cls", "classifier")


def scorers(model: nn.Module) -> State:
    """The selectors as the paper's authors save them, counted by kind."""
    theirs, counts = {}, {"T": 0, "S": 0}
    for label, selector in model.token_selectors.items():
        kind = {"T": "time", "S": "space"}[label[0]]
        ours = selector.scoring.network.state_dict()
        prefix = f"{kind}_score_predictor.{counts[label[0]]}.score_network"
        for layer, place in (("in_conv", "embed"), ("out_conv", "score")):
            for index in range(5):
                theirs |= _pair(ours, f"{prefix}.{layer}.{index}", f"{place}.{index}")
        counts[label[0]] += 1
    return theirs
