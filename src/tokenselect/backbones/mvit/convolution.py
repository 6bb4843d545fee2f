"""Depthwise convolution of a grid of tokens, with a backward pass that is as fast as the forward.

Tokens stay channels last, so the convolution reads them where they are; class tokens in front pass
through. On a CPU the 3-d forward kernel is fast, while those for its gradients are up to forty
times slower. So the gradient of the tokens is written as forward convolutions, and that of the
kernel as 2-d ones, frame by frame.
"""

import math
from collections.abc import Sequence
from itertools import product
from typing import Any, NamedTuple

import torch
import torch.nn.functional as F
from torch import Tensor, nn
from torch.autograd.function import once_differentiable
from torch.nn.grad import conv2d_weight

from tokenselect.plan import THW


def convolve_tokens(tokens: Tensor, weight: Tensor, *, thw: THW, stride: THW) -> Tensor:
    """Convolve every channel of the patches with its own kernel, zeros outside the grid.

    Args:
        tokens: (b, p + t·h·w, c).
        weight: (d, 1, kt, kh, kw) with odd sides; d divides c, and channel i uses kernel i mod d.

    Returns:
        (b, p + t'·h'·w', c), each side divided by its stride and rounded up.
    """
    kernel = weight.repeat(tokens.shape[-1] // weight.shape[0], 1, 1, 1, 1)
    if torch.is_grad_enabled():
        return _ConvolveTokens.apply(tokens, kernel, thw, stride)
    p = tokens.shape[1] - math.prod(thw)
    patches = _convolve(_to_volume(tokens[:, p:], thw), kernel, stride)
    return torch.cat([tokens[:, :p], patches], dim=1)


def call_on_tokens(layer: nn.Module, tokens: Tensor, *, thw: THW, channels: int) -> Tensor:
    """Call a layer of (b, channels, t, h, w) volumes on each head's patches of (b, n, c) tokens."""
    p = tokens.shape[1] - math.prod(thw)
    heads = tokens[:, p:].unflatten(2, (-1, channels)).unflatten(1, thw)
    pooled = layer(heads.permute(0, 4, 5, 1, 2, 3).flatten(0, 1))  # (b·heads, channels, t', …)
    pooled = pooled.unflatten(0, (tokens.shape[0], -1)).permute(0, 3, 4, 5, 1, 2)
    return torch.cat([tokens[:, :p], pooled.flatten(4).flatten(1, 3)], dim=1)


def _convolve(volume: Tensor, kernel: Tensor, stride: THW) -> Tensor:
    """Convolve a (b, c, t, h, w) volume to (b, t'·h'·w', c) patches."""
    padding = [side // 2 for side in kernel.shape[2:]]
    pooled = F.conv3d(volume, kernel, stride=stride, padding=padding, groups=kernel.shape[0])
    return pooled.permute(0, 2, 3, 4, 1).flatten(1, 3)


class _ConvolveTokens(torch.autograd.Function):
    @staticmethod
    def forward(ctx: Any, tokens: Tensor, kernel: Tensor, thw: THW, stride: THW) -> Tensor:
        p = tokens.shape[1] - math.prod(thw)
        volume = _to_volume(tokens[:, p:], thw)
        ctx.save_for_backward(volume, kernel)
        ctx.stride = stride
        return torch.cat([tokens[:, :p], _convolve(volume, kernel, stride)], dim=1)

    @staticmethod
    @once_differentiable
    def backward(ctx: Any, grad: Tensor) -> tuple[Tensor, Tensor, None, None]:
        volume, weight = ctx.saved_tensors
        volume, kernel = volume.to(grad.dtype), weight.to(grad.dtype)  # autocast made grad low
        thw = volume.shape[2:]
        pooled_thw = [-(-side // step) for side, step in zip(thw, ctx.stride, strict=True)]
        p = grad.shape[1] - math.prod(pooled_thw)
        grad_pooled = _to_volume(grad[:, p:], pooled_thw)
        grad_tokens = grad.new_zeros(grad.shape[0], p + math.prod(thw), grad.shape[2])
        grad_tokens[:, :p] = grad[:, :p]
        grad_volume = grad_tokens[:, p:].unflatten(1, thw).permute(0, 4, 1, 2, 3)
        _fill_input_gradient(grad_volume, grad_pooled, kernel, ctx.stride)
        grad_kernel = _weight_gradient(volume, grad_pooled, kernel, ctx.stride)
        return grad_tokens, grad_kernel.to(weight.dtype), None, None


def _to_volume(patches: Tensor, thw: Sequence[int]) -> Tensor:
    """View (b, t·h·w, c) as (b, c, t, h, w); a copy only where class tokens lie between clips."""
    volume = patches.unflatten(1, thw).permute(0, 4, 1, 2, 3)
    return volume.contiguous(memory_format=torch.channels_last_3d)


class _Phase(NamedTuple):
    """Places of one axis that leave the same remainder by the stride, and so meet the same taps."""

    places: slice
    taps: slice
    padding: int  # of the pooled axis, at both ends, when it is convolved with the taps
    start: int  # where in that convolution the first place stands


def _fill_input_gradient(
    grad_volume: Tensor, grad_pooled: Tensor, kernel: Tensor, stride: THW
) -> None:
    """Write the gradient of the patches into a (b, c, t, h, w) tensor of zeros.

    For the patches of one phase it is a plain convolution with their taps, turned round.
    """
    axes = zip(grad_volume.shape[2:], kernel.shape[2:], stride, strict=True)
    for phases in product(*(_phases(*axis) for axis in axes)):
        places, taps, padding, start = zip(*phases, strict=True)
        part = kernel[:, :, *taps].flip(2, 3, 4)
        found = F.conv3d(grad_pooled, part, padding=padding, groups=part.shape[0])
        found = found[:, :, *(slice(first, None) for first in start)]
        target = grad_volume[:, :, *places]
        sides = map(min, found.shape[2:], target.shape[2:])  # no tap meets what lies beyond
        inside = [slice(side) for side in sides]
        target[:, :, *inside] = found[:, :, *inside]


def _phases(side: int, reach: int, step: int) -> list[_Phase]:
    """List the phases of an axis of `side` places that meet any of the kernel's `reach` taps."""
    phases = []
    for phase in range(min(step, side)):
        ahead, first = divmod(phase + reach // 2, step)
        overlap = len(range(first, reach, step)) - 1
        if overlap < 0:
            continue
        before = overlap - ahead
        after = len(range(phase, side, step)) + ahead - len(range(0, side, step))
        padding = min(max(before, after, 0), overlap)
        taps = slice(first, None, step)
        phases.append(_Phase(slice(phase, None, step), taps, padding, padding - before))
    return phases


def _weight_gradient(volume: Tensor, grad_pooled: Tensor, kernel: Tensor, stride: THW) -> Tensor:
    """Return the (c, 1, kt, kh, kw) gradient of the kernel, one step of time after the other."""
    c, _, kt, kh, kw = kernel.shape
    frames, size, padding = _to_frames(volume), (c, 1, kh, kw), (kh // 2, kw // 2)
    taps = []
    for tap in range(kt):
        met = _spread_over_time(grad_pooled, volume.shape[2], first=tap - kt // 2, step=stride[0])
        met = _to_frames(met)
        taps.append(conv2d_weight(frames, size, met, stride=stride[1:], padding=padding, groups=c))
    return torch.stack(taps, dim=2)


def _spread_over_time(pooled: Tensor, num_frames: int, *, first: int, step: int) -> Tensor:
    """Put pooled frame i at first + i·step among `num_frames`, zeros elsewhere and none outside."""
    b, c, _, h, w = pooled.shape
    spread = pooled.new_zeros(b, num_frames, h, w, c).permute(0, 4, 1, 2, 3)
    skipped = max(0, -(first // step))
    source = pooled[:, :, skipped:]
    target = spread[:, :, first + skipped * step :: step]
    count = min(source.shape[2], target.shape[2])
    target[:, :, :count] = source[:, :, :count]
    return spread


def _to_frames(volume: Tensor) -> Tensor:
    """View (b, c, t, h, w) as (b·t, c, h, w), channels last."""
    return volume.permute(0, 2, 3, 4, 1).flatten(0, 1).permute(0, 3, 1, 2)


def keep_read(tokens: Tensor, *, thw: THW, kernel: THW, stride: THW) -> tuple[Tensor, THW, THW]:
    """Drop the patches of (b, p + t·h·w, c) tokens that no window of a pooling covers.

    Gives the remaining tokens, their grid, and the stride that pools them to the same result.
    """
    axes = [
        [place for place in range(side) if (place + reach // 2) % step < reach]
        for side, reach, step in zip(thw, kernel, stride, strict=True)
    ]
    t, h, w = map(len, axes)
    if (t, h, w) == thw:
        return tokens, thw, stride
    frames, rows, columns = (torch.tensor(axis, device=tokens.device) for axis in axes)
    places = (frames[:, None, None] * thw[1] + rows[:, None]) * thw[2] + columns  # (t, h, w)
    num_prefix = tokens.shape[1] - thw[0] * thw[1] * thw[2]
    prefix = torch.arange(num_prefix, device=tokens.device)
    kept = tokens.index_select(1, torch.cat([prefix, num_prefix + places.flatten()]))
    st, sh, sw = map(min, stride, kernel)
    return kept, (t, h, w), (st, sh, sw)
