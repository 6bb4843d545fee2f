"""Linear layers with what comes right after them.

Where a CPU wants no gradients, sums and GELU happen in place on the product: every pass over fresh
memory that is saved counts there.
"""

from functools import partial

import torch
import torch.nn.functional as F
from torch import Tensor, nn

from tokenselect.backbones.mvit.parts import fill_in_parts, is_cpu_inference, tokens_at_once


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
