"""Fast paths of CPU inference: work in cache-sized pieces, products fused with what follows."""

from collections.abc import Callable, Iterable
from functools import partial

import torch
import torch.nn.functional as F
from torch import Tensor, nn

# Measured on MViT-B16: speed is flat near these values.
CLIP_VALUES = 2**21  # of a batch, in whole clips: 8 MB of float32
TOKEN_VALUES = 2**18  # of tokens that a perceptron makes four times as many of
MIN_TOKENS = 2048  # fewer at once make matrix products slower


def clips_at_once(values_of_clip: int) -> int:
    """Return how many clips to take at once, given the values that one has."""
    return max(CLIP_VALUES // values_of_clip, 1)


def tokens_at_once(channels: int) -> int:
    """Return how many tokens to take at once through a perceptron."""
    return max(TOKEN_VALUES // channels, MIN_TOKENS)


def is_cpu_inference(tensor: Tensor) -> bool:
    """Tell whether plain code runs on a CPU, in one precision, and no gradient is wanted."""
    is_plain = not (torch.compiler.is_compiling() or torch.is_autocast_enabled("cpu"))
    return tensor.is_cpu and is_plain and not torch.is_grad_enabled()


def fill_in_parts(
    function: Callable[..., object], *tensors: Tensor, out: Tensor, at_once: int
) -> Tensor:
    """Apply a function that treats every row alone to some rows after the other.

    Each part's result is written where it belongs: fresh memory costs a CPU as much as a pass over
    it, and there would be one more to join the parts.

    Args:
        function: maps tensors of (rows, …) to one of (rows, …), which it writes to its `out`.
        tensors: its arguments.
        out: takes all results.
        at_once: rows of a part, at most.
    """
    num_parts = -(-len(out) // at_once)
    for *part, place in zip(*(rows.chunk(num_parts) for rows in (*tensors, out)), strict=True):
        function(*part, out=place)
    return out


def add_linear(
    skip: Tensor, tokens: Tensor, layer: nn.Linear, *, out: Tensor | None = None
) -> Tensor:
    """Return skip + layer(tokens), of (n, c') and (n, c); `out` takes it, and may be `skip`."""
    if _is_exposed(layer, tokens):
        return torch.add(skip, layer.bias, out=out).addmm_(tokens, layer.weight.t())
    return _put(skip + layer(tokens), out)


def apply_linear(tokens: Tensor, layer: nn.Linear, *, out: Tensor | None = None) -> Tensor:
    """Return layer(tokens) of (n, c) tokens; `out` takes it."""
    if _is_exposed(layer, tokens):
        return torch.mm(tokens, layer.weight.t(), out=out).add_(layer.bias)
    return _put(layer(tokens), out)


def apply_in_parts(tokens: Tensor, layer: nn.Linear) -> Tensor:
    """Return layer(tokens) of (b, n, c) tokens, made a cacheful at a time."""
    flat = tokens.flatten(0, 1)
    if not _is_exposed(layer, flat):
        return layer(tokens)
    out = flat.new_empty(len(flat), layer.out_features)
    at_once = tokens_at_once(flat.shape[1])
    fill_in_parts(partial(apply_linear, layer=layer), flat, out=out, at_once=at_once)
    return out.unflatten(0, tokens.shape[:2])


def gelu_linear(tokens: Tensor, layer: nn.Linear) -> Tensor:
    """Return gelu(layer(tokens)) of (n, c) tokens."""
    if _is_exposed(layer, tokens):
        return torch.ops.aten.gelu_(apply_linear(tokens, layer))
    return F.gelu(layer(tokens))


def _is_exposed(layer: nn.Linear, tokens: Tensor) -> bool:
    """Tell whether the layer is its weight and bias and no more; a quantized one is not."""
    return type(layer) is nn.Linear and tokens.ndim == 2 and is_cpu_inference(tokens)


def _put(tokens: Tensor, out: Tensor | None) -> Tensor:
    return tokens if out is None else out.copy_(tokens)


PORTION = 2**21  # numbers that a step may write at a time: 8 MB of float32


def split_portions(tokens: Tensor, *, width: int, unit: int = 1) -> tuple[Tensor, ...]:
    """Split rows where a step will make `width` numbers of each.

    They stay together where portions would do harm: on other devices, and in a graph.

    Args:
        tokens: (n, ...) rows.
        width: numbers made of one row.
        unit: rows that belong together; it divides n.
    """
    if tokens.device.type != "cpu" or torch.compiler.is_compiling():
        return (tokens,)
    return tokens.split(max(PORTION // (width * unit), 1) * unit)


def map_portions(step: Callable[[Tensor], Tensor], tokens: Tensor, *, width: int) -> Tensor:
    """Apply a step that treats (n, c) tokens one by one, making `width` numbers of each."""
    portions = split_portions(tokens, width=width)
    return collect((step(portion) for portion in portions), like=tokens)


def collect(parts: Iterable[Tensor], *, like: Tensor) -> Tensor:
    """Concatenate along dim 0 what makes up a tensor like another.

    Without gradients, each part goes to its place as soon as it is made, still in the cache.
    """
    if torch.is_grad_enabled() or torch.compiler.is_compiling():
        return torch.cat(list(parts))
    joined, filled = torch.empty_like(like), 0
    for part in parts:
        joined[filled : filled + len(part)] = part
        filled += len(part)
    return joined
