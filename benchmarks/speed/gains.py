"""What each change gave: a forward as it is, and with what the change replaced, in turns."""

import math
from collections.abc import Callable
from contextlib import AbstractContextManager
from functools import cache
from unittest.mock import patch

import torch
import torch.nn.functional as F
from torch import Tensor, nn

from benchmarks.speed.timing import Row, build, make_clips, medians, speed_up, time_rounds
from tokenselect.backbones import fast_cpu as parts
from tokenselect.backbones import fast_cpu as portions
from tokenselect.backbones.mvit import block, model
from tokenselect.backbones.mvit import block as attention
from tokenselect.backbones.mvit import block as pooling
from tokenselect.backbones.mvit.convolution import THW
from tokenselect.backbones.video_swin import block as window_attention
from tokenselect.inference.memory import keep_freed_memory

Switch = Callable[[], AbstractContextManager[object]]  # off with the change while it is entered
NO_PARTS = 2**40
GAINS: dict[str, dict[str, Switch]] = {
    "mvit_b16": {
        "poolings read tokens where they lie": lambda: patch.object(
            pooling, "convolve_tokens", convolve_copies
        ),
        "keys and values that no pooling reads left out": lambda: patch.object(
            attention, "keep_read", keep_all
        ),
        "sums, biases and GELU on the product": lambda: patch.multiple(
            block, add_linear=add_result, apply_linear=put_result, gelu_linear=gelu_of_result
        ),
        "clips and tokens in cachefuls": lambda: patch.multiple(
            parts, CLIP_VALUES=NO_PARTS, TOKEN_VALUES=NO_PARTS
        ),
        "patches written as tokens": lambda: patch.object(model, "cut_patches", turn_patches),
    },
    "video_swin_b": {
        "fused attention with biases as its mask": lambda: patch.object(
            window_attention, "attend", attend_in_steps
        ),
        "windows and tokens in cachefuls": lambda: patch.object(portions, "PORTION", NO_PARTS),
    },
}
LEFT_OUT: dict[str, Switch] = {  # tried, and not in the code: a gain below 1 says why
    "weights packed, GELU inside the product": lambda: patch.object(
        block, "gelu_linear", packed_gelu_linear
    ),
}


def measure_gains(repeats: int, device: torch.device) -> list[Row]:
    """Time forwards without each change, and with what was tried and left out; memory is kept."""
    keep_freed_memory()
    rows = []
    for name, switches in GAINS.items():
        built = build(name, None, device)
        video = make_clips(built, 1, device)
        others = LEFT_OUT if name == "mvit_b16" and device.type == "cpu" else {}
        tasks = {"as it is": forward(built, video)}
        tasks |= {change: forward(built, video, off) for change, off in switches.items()}
        tasks |= {change: forward(built, video, on) for change, on in others.items()}
        answers = [task() for task in tasks.values()]
        gap = max(float((answer - answers[0]).abs().max()) for answer in answers)
        assert gap < 1e-4, f"logits differ by {gap}"
        rounds = time_rounds(tasks, repeats, device)
        seconds = medians(rounds)
        for change in (*switches, *others):
            pair = ("as it is", change) if change in others else (change, "as it is")
            rows.append(
                {
                    "model": name,
                    "change": change,
                    "in the code": "no" if change in others else "yes",
                }
                | {"without s": seconds[pair[0]], "with s": seconds[pair[1]]}
                | {"gain": speed_up(rounds, *pair)}
            )
    return rows


def forward(built: nn.Module, video: Tensor, switch: Switch | None = None) -> Callable[[], Tensor]:
    """Give a forward, with something else in a place of the code if asked for."""

    @torch.inference_mode()
    def run() -> Tensor:
        if switch is None:
            return built(video)
        with switch():
            return built(video)

    return run


def convolve_copies(tokens: Tensor, weight: Tensor, *, thw: THW, stride: THW) -> Tensor:
    """Pool by head in a copy that has channels first, and copy back."""
    d, num_prefix = len(weight), tokens.shape[1] - math.prod(thw)
    patches = tokens[:, num_prefix:].unflatten(1, thw)
    heads = patches.unflatten(-1, (-1, d))  # (b, t, h, w, heads, d)
    volume = heads.permute(0, 4, 5, 1, 2, 3).flatten(0, 1).contiguous()
    padding = [side // 2 for side in weight.shape[2:]]
    pooled = F.conv3d(volume, weight, stride=stride, padding=padding, groups=d)
    pooled = pooled.unflatten(0, (len(tokens), -1)).permute(0, 3, 4, 5, 1, 2)
    return torch.cat([tokens[:, :num_prefix], pooled.flatten(1, 3).flatten(-2)], dim=1)


def keep_all(tokens: Tensor, *, thw: THW, kernel: THW, stride: THW) -> tuple[Tensor, THW, THW]:
    """Leave nothing out."""
    del kernel
    return tokens, thw, stride


def turn_patches(video: Tensor, patch: nn.Conv3d) -> Tensor:
    """Cut patches with channels first and turn them round in a copy."""
    return patch(video).permute(0, 2, 3, 4, 1).contiguous()


def attend_in_steps(q: Tensor, k: Tensor, v: Tensor, bias: Tensor) -> Tensor:
    """Attend in plain steps: products, biases, softmax."""
    scores = (q * q.shape[-1] ** -0.5) @ k.mT + bias
    return scores.softmax(dim=-1) @ v


def add_result(
    skip: Tensor, tokens: Tensor, layer: nn.Linear, *, out: Tensor | None = None
) -> Tensor:
    """Add what the layer gives to the skip path."""
    return put(skip + layer(tokens), out)


def put_result(tokens: Tensor, layer: nn.Linear, *, out: Tensor | None = None) -> Tensor:
    """Call the layer."""
    return put(layer(tokens), out)


def gelu_of_result(tokens: Tensor, layer: nn.Linear) -> Tensor:
    """Call the layer, then GELU."""
    return F.gelu(layer(tokens))


def put(tokens: Tensor, out: Tensor | None) -> Tensor:
    """Copy to `out`, if there is one."""
    return tokens if out is None else out.copy_(tokens)


def packed_gelu_linear(tokens: Tensor, layer: nn.Linear) -> Tensor:
    """Apply a layer whose weight lies as oneDNN likes it, bias and GELU inside the product."""
    weight = pack(layer, len(tokens))
    return torch.ops.mkldnn._linear_pointwise(tokens, weight, layer.bias, "gelu", [], "none")


@cache
def pack(layer: nn.Linear, rows: int) -> Tensor:
    """Lay a weight out once for a number of rows."""
    return torch.ops.mkldnn._reorder_linear_weight(layer.weight.detach(), rows)
