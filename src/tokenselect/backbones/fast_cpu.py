"""Fast paths on a CPU: work in cache-sized pieces, products fused with what follows.

They are for layers as our models build them; `is_untouched` says which those are.
"""

from collections.abc import Callable, Iterable
from functools import partial

import torch
from torch import Tensor, nn
from torch.nn.modules.module import _has_any_global_hook

# Measured on MViT-B16: speed is flat near these values.
CLIP_VALUES = 2**21  # of a batch, in whole clips: 8 MB of float32
TOKEN_VALUES = 2**18  # of tokens that an MLP makes four times as many of
MIN_TOKENS = 2048  # fewer at once make matrix products slower


def clips_at_once(values_of_clip: int) -> int:
    """Return how many clips to take at once, given the values that one has."""
    return max(CLIP_VALUES // values_of_clip, 1)


def tokens_at_once(channels: int) -> int:
    """Return how many tokens to take at once through an MLP."""
    return max(TOKEN_VALUES // channels, MIN_TOKENS)


def is_cpu_inference(tensor: Tensor) -> bool:
    """Tell whether plain code runs on a CPU, in one precision, and no gradient is wanted."""
    is_plain = not (torch.compiler.is_compiling() or torch.is_autocast_enabled("cpu"))
    return tensor.is_cpu and is_plain and not torch.is_grad_enabled()


def is_traced_inference() -> bool:
    """Tell whether a graph to be compiled or exported is made, and no gradient is wanted."""
    return torch.compiler.is_compiling() and not torch.is_grad_enabled()


PLAIN_LAYERS = (nn.Linear, nn.LayerNorm, nn.Conv3d)
PLAIN_WEIGHTS = ("Parameter", "Tensor", "FakeTensor")  # the last one while a graph is made


def is_untouched(*modules: nn.Module) -> bool:
    """Tell whether the modules and all inside them are as our models build them.

    A fast path calls a layer several times, with some tokens each, or reads its weights. It is for
    layers that nobody replaced (LoRA, quantisation), hooked or patched; others must be called once,
    with all tokens.
    """
    return not _has_any_global_hook() and all(map(_is_untouched, modules))


def _is_untouched(module: nn.Module) -> bool:
    own = module.__dict__  # read directly: this runs in front of every block
    kind = type(module)
    is_plain = kind in PLAIN_LAYERS or kind.__module__.startswith("tokenselect.backbones.")
    if not is_plain or "forward" in own:
        return False
    if own["_forward_hooks"] or own["_forward_pre_hooks"]:
        return False
    if own["_backward_hooks"] or own["_backward_pre_hooks"]:
        return False
    for weight in own["_parameters"].values():
        if weight is not None and type(weight).__name__ not in PLAIN_WEIGHTS:
            return False  # a quantised one, say
    return all(child is None or _is_untouched(child) for child in own["_modules"].values())


def fill_in_parts(
    function: Callable[..., object], *tensors: Tensor, out: Tensor, at_once: int
) -> Tensor:
    """Apply a function that treats every row alone to at most `at_once` rows after the other.

    It maps tensors of (rows, …) to one, which it writes to its `out`: each part's result goes where
    it belongs. Fresh memory costs a CPU as much as a pass over it, and joining parts one more.
    """
    num_parts = -(-len(out) // at_once)
    for *part, place in zip(*(rows.chunk(num_parts) for rows in (*tensors, out)), strict=True):
        function(*part, out=place)
    return out


def add_linear(
    skip: Tensor, tokens: Tensor, layer: nn.Linear, *, out: Tensor | None = None
) -> Tensor:
    """Return skip + layer(tokens), of (n, c') and (n, c); `out` takes it, and may be `skip`."""
    return torch.add(skip, _bias(layer), out=out).addmm_(tokens, layer.weight.t())


def apply_linear(tokens: Tensor, layer: nn.Linear, *, out: Tensor | None = None) -> Tensor:
    """Return layer(tokens) of (n, c) tokens; `out` takes it."""
    return torch.mm(tokens, layer.weight.t(), out=out).add_(_bias(layer))


def apply_in_parts(tokens: Tensor, layer: nn.Linear) -> Tensor:
    """Return layer(tokens) of (b, n, c) tokens, made a cacheful at a time."""
    flat = tokens.flatten(0, 1)
    out = flat.new_empty(len(flat), layer.out_features)
    at_once = tokens_at_once(flat.shape[1])
    fill_in_parts(partial(apply_linear, layer=layer), flat, out=out, at_once=at_once)
    return out.unflatten(0, tokens.shape[:2])


def gelu_linear(tokens: Tensor, layer: nn.Linear) -> Tensor:
    """Return gelu(layer(tokens)) of (n, c) tokens."""
    return torch.ops.aten.gelu_(apply_linear(tokens, layer))


def _bias(layer: nn.Linear) -> Tensor | float:
    return 0.0 if layer.bias is None else layer.bias


PORTION = 2**21  # numbers that a step may write at a time: 8 MB of float32


def can_split(tokens: Tensor, *modules: nn.Module) -> bool:
    """Tell whether modules may be given some tokens at a time: elsewhere it does harm."""
    return tokens.is_cpu and not torch.compiler.is_compiling() and is_untouched(*modules)


def split_portions(tokens: Tensor, *, width: int, unit: int = 1) -> tuple[Tensor, ...]:
    """Split (n, ...) rows, `unit` of them together, where a step makes `width` numbers of each."""
    return tokens.split(max(PORTION // (width * unit), 1) * unit)


def collect(parts: Iterable[Tensor], *, like: Tensor) -> Tensor:
    """Concatenate along dim 0 what makes up a tensor like another.

    Without gradients, each part goes to its place as soon as it is made, still in the cache.
    """
    if torch.is_grad_enabled():
        return torch.cat(list(parts))
    joined, filled = torch.empty_like(like), 0
    for part in parts:
        joined[filled : filled + len(part)] = part
        filled += len(part)
    return joined
