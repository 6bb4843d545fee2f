"""Work on as many tokens at a time as a processor's cache holds.

A step that makes several times as many channels as it was given (queries, keys and values, or a
perceptron's hidden layer) writes tens of megabytes for a clip and reads them once. A portion at a
time they never leave the cache, and memory is not asked of the system anew for every layer.
"""

from collections.abc import Callable, Iterable

import torch
from torch import Tensor

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
