"""Weights of the same architecture under other names, of images, and of other windows."""

import re
from collections.abc import Mapping

import torch.nn.functional as F
from torch import Tensor

from tokenselect.backbones.video_swin.windows import THW

RENAMED = [
    (r"^patch_embed\.proj\.", "embedding.project."),
    (r"^patch_embed\.norm\.", "embedding.norm."),
    (r"^(?:head(?:\.fc)?|cls_head\.fc_cls)\.", "classifier."),
    (r"^norm\d+\.", "norm."),  # of the last stage, in mmaction2
    (r"\.norm1\.", ".norm_attention."),
    (r"\.norm2\.", ".norm_mlp."),
    (r"\.attn\.proj\.", ".attention.project."),
    (r"\.attn\.relative_position_bias_table$", ".attention.bias_table"),
    (r"\.attn\.", ".attention."),
    (r"\.mlp\.(?:0|fc1)\.", ".mlp.expand."),
    (r"\.mlp\.(?:3|fc2)\.", ".mlp.contract."),
    (r"\.reduction\.", ".reduce."),
]
NOT_LEARNED = ("relative_position_index", "attn_mask")


def from_torchvision(state: Mapping[str, Tensor]) -> dict[str, Tensor]:
    """Rename the weights of torchvision's video Swin (swin3d_t, _s, _b) or image Swin to ours.

    There, `features` alternates between stages and patch mergings; here, all blocks stand in one
    list and a merging belongs to the last block of its stage. The patch embedding, a convolution
    there, is a linear layer here; the image model has it in `features` too.
    """
    if "features.0.0.weight" in state:
        patch = {"features.0.0.": "patch_embed.proj.", "features.0.2.": "patch_embed.norm."}
        state = {patch.get(name[:13], name[:13]) + name[13:]: w for name, w in state.items()}
    starts = _first_blocks(state, r"features\.(\d+)\.(\d+)\.norm1\.weight")

    def place(name: str) -> str:
        if block := re.match(r"features\.(\d+)\.(\d+)\.(.*)", name):
            return f"blocks.{starts[int(block[1])] + int(block[2])}.{block[3]}"
        if merging := re.match(r"features\.(\d+)\.(.*)", name):
            return f"blocks.{starts[int(merging[1]) + 1] - 1}.merging.{merging[2]}"
        return name

    return {
        _rename(place(name)): _flat_patch(name, weight)
        for name, weight in state.items()
        if not name.endswith(NOT_LEARNED)
    }


def from_mmaction(state: Mapping[str, Tensor]) -> dict[str, Tensor]:
    """Rename the weights of the authors' Video Swin, of mmaction2's, or of an image Swin to ours.

    In the authors' and most others, a stage ends with its patch merging (`downsample`); in newer
    timm files it begins with it.
    """
    state = {name.removeprefix("backbone."): weight for name, weight in state.items()}
    starts = _first_blocks(state, r"layers\.(\d+)\.blocks\.(\d+)\.norm1\.weight")
    begins_with_merging = any(name.startswith(f"layers.{max(starts)}.downsample") for name in state)

    def place(name: str) -> str:
        if block := re.match(r"layers\.(\d+)\.blocks\.(\d+)\.(.*)", name):
            return f"blocks.{starts[int(block[1])] + int(block[2])}.{block[3]}"
        if merging := re.match(r"layers\.(\d+)\.downsample\.(.*)", name):
            next_stage = int(merging[1]) + (not begins_with_merging)
            return f"blocks.{starts[next_stage] - 1}.merging.{merging[2]}"
        return name

    return {
        _rename(place(name)): _flat_patch(name, weight)
        for name, weight in state.items()
        if not name.endswith(NOT_LEARNED)
    }


def inflate_image(state: Mapping[str, Tensor], *, patch: THW, window: THW) -> dict[str, Tensor]:
    """Turn the weights of an image Swin, already under our names, into those of a video Swin.

    A clip of equal frames then gives the embedding of the image: the patch is spread over its
    frames, and biases do not depend on the offset in time (Video Swin, section 3.3). The image's
    classifier is left out.

    Args:
        state: as `from_mmaction` gives it.
        patch: frames, rows and columns of the video model's patch.
        window: sides of its window; rows and columns may differ from the image model's.
    """
    inflated = {}
    for name, weight in state.items():
        if name.startswith("classifier."):
            continue
        if name == "embedding.project.weight":  # (c, 3·h·w)
            pixels = weight.unflatten(1, (3, 1, -1)).expand(-1, -1, patch[0], -1)
            weight = pixels.flatten(1) / patch[0]
        elif name.endswith("bias_table"):
            weight = weight.repeat(2 * window[0] - 1, 1)
        inflated[name] = weight
    return inflated


def resize_biases(state: Mapping[str, Tensor], *, window: THW) -> dict[str, Tensor]:
    """Interpolate bias tables of another window to those of `window`; offset 0 stays in place."""
    resized = dict(state)
    sides = [2 * side - 1 for side in window]
    for name, table in state.items():
        if not name.endswith("bias_table"):
            continue
        theirs = [2 * side - 1 for side in guess_window(table.shape[0], like=window)]
        if theirs != sides:
            volume = table.t().unflatten(1, theirs)[None]  # (1, heads, t, h, w)
            volume = F.interpolate(volume, size=sides, mode="trilinear", align_corners=True)
            resized[name] = volume[0].flatten(1).t().contiguous()
    return resized


def guess_window(num_offsets: int, *, like: THW) -> THW:
    """Find the window of a bias table from its length.

    Args:
        num_offsets: rows of the table.
        like: a window; of those that fit, one with its rows and columns is preferred, then one of
            its frames; others must be square.
    """
    t, h, w = like
    frames, rest = divmod(num_offsets, (2 * h - 1) * (2 * w - 1))
    if rest == 0 and frames % 2 == 1:
        return (frames + 1) // 2, h, w
    for frames in (t, *range(1, 65)):
        for side in range(1, 65):
            if (2 * frames - 1) * (2 * side - 1) ** 2 == num_offsets:
                return frames, side, side
    raise ValueError(f"a bias table of {num_offsets} offsets fits no window with square sides")


def _flat_patch(name: str, weight: Tensor) -> Tensor:
    """Flatten the kernel of the patch embedding."""
    return weight.flatten(1) if name == "patch_embed.proj.weight" else weight


def _first_blocks(state: Mapping[str, Tensor], pattern: str) -> dict[int, int]:
    """Map each stage's number in the names to our index of its first block."""
    depths: dict[int, int] = {}
    for match in filter(None, (re.match(pattern, name) for name in state)):
        depths[int(match[1])] = max(depths.get(int(match[1]), 0), int(match[2]) + 1)
    starts, total = {}, 0
    for stage in sorted(depths):
        starts[stage] = total
        total += depths[stage]
    return starts


def _rename(name: str) -> str:
    for pattern, ours in RENAMED:
        name = re.sub(pattern, ours, name)
    return name
