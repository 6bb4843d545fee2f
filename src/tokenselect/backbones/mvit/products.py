"""Linear layers with what comes right after them.

Where a CPU wants no gradients, sums and GELU happen in place on the product: every pass over fresh
memory that is saved counts there.
"""

import torch
import torch.nn.functional as F
from torch import Tensor, nn

from tokenselect.backbones.mvit.parts import is_cpu_inference


def add_linear(skip: Tensor, tokens: Tensor, layer: nn.Linear) -> Tensor:
    """Return skip + layer(tokens), of (n, c') and (n, c)."""
    if _is_exposed(layer, tokens):
        return (skip + layer.bias).addmm_(tokens, layer.weight.t())
    return skip + layer(tokens)


def gelu_linear(tokens: Tensor, layer: nn.Linear) -> Tensor:
    """Return gelu(layer(tokens)) of (n, c) tokens."""
    if _is_exposed(layer, tokens):
        return torch.ops.aten.gelu_(torch.mm(tokens, layer.weight.t()).add_(layer.bias))
    return F.gelu(layer(tokens))


def _is_exposed(layer: nn.Linear, tokens: Tensor) -> bool:
    """Tell whether the layer is its weight and bias and no more; a quantized one is not."""
    return type(layer) is nn.Linear and tokens.ndim == 2 and is_cpu_inference(tokens)
