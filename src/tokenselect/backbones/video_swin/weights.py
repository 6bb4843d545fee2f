"""Weights of the same architecture under other names, of images, and of other windows."""

import re
from collections.abc import Mapping
from itertools import accumulate

import torch.nn.functional as F
from torch import Tensor

from tokenselect.plan import THW

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
    return _place(state, block=r"features\.(\d+)\.(\d+)\.", merging=r"features\.(\d+)\.", ahead=1)


def from_mmaction(state: Mapping[str, Tensor]) -> dict[str, Tensor]:
    """Rename the weights of the authors' Video Swin, of mmaction2's, or of an image Swin to ours.

    In the authors' and most others, a stage ends with its patch merging (`downsample`); in newer
    timm files it begins with it.
    """
    state = {name.removeprefix("backbone."): weight for name, weight in state.items()}
    stages = {int(found[1]) for found in map(re.compile(r"layers\.(\d+)\.").match, state) if found}
    begins = any(name.startswith(f"layers.{max(stages)}.downsample") for name in state)
    return _place(
        state,
        block=r"layers\.(\d+)\.blocks\.(\d+)\.",
        merging=r"layers\.(\d+)\.downsample\.",
        ahead=0 if begins else 1,
    )


def _place(
    state: Mapping[str, Tensor], *, block: str, merging: str, ahead: int
) -> dict[str, Tensor]:
    """Number all blocks through, put mergings into them, and rename what is inside.

    `block` (a stage, a block) and `merging` (a stage) match how names begin; the merging leads to
    the stage that comes `ahead` stages after its own.
    """
    depths: dict[int, int] = {}
    for found in filter(None, (re.match(block, name) for name in state)):
        depths[int(found[1])] = max(depths.get(int(found[1]), 0), int(found[2]) + 1)
    firsts = accumulate((depths[stage] for stage in sorted(depths)), initial=0)
    starts = dict(zip(sorted(depths), firsts, strict=False))

    def place(name: str) -> str:
        if found := re.match(block, name):
            return f"blocks.{starts[int(found[1])] + int(found[2])}.{name[found.end() :]}"
        if found := re.match(merging, name):
            return f"blocks.{starts[int(found[1]) + ahead] - 1}.merging.{name[found.end() :]}"
        return name

    placed = {}
    for name, weight in state.items():
        if not name.endswith(NOT_LEARNED):
            flat = weight.flatten(1) if name == "patch_embed.proj.weight" else weight
            ours = place(name)
            for pattern, replacement in RENAMED:
                ours = re.sub(pattern, replacement, ours)
            placed[ours] = flat
    return placed


def inflate_image(state: Mapping[str, Tensor], *, patch: THW, window: THW) -> dict[str, Tensor]:
    """Turn the weights of an image Swin, already under our names, into those of a video Swin.

    A clip of equal frames then gives the embedding of the image: the patch is spread over its
    frames, and biases do not depend on the offset in time (Video Swin, section 3.3). The image's
    classifier is left out; its windows may differ from `window` in rows and columns.
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
    """Find the window of a bias table from its number of rows.

    Of those that fit, one with the rows and columns of `like` is preferred, then one of its frames;
    others must be square.
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
