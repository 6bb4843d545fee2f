"""Work on a part of a batch at a time, so that what lies between stays in a CPU's cache."""

from collections.abc import Callable

import torch
from torch import Tensor

# Measured on MViT-B16: speed is flat near these values.
CLIP_VALUES = 2**19  # of a batch, in whole clips: 2 MB of float32
TOKEN_VALUES = 2**18  # of tokens that a perceptron makes four times as many of
MIN_TOKENS = 2048  # fewer at once make matrix products slower


def clips_at_once(values_of_clip: int) -> int:
    """Return how many clips to take at once, given the values that one has."""
    return max(CLIP_VALUES // values_of_clip, 1)


def tokens_at_once(channels: int) -> int:
    """Return how many tokens to take at once through a perceptron."""
    return max(TOKEN_VALUES // channels, MIN_TOKENS)


def is_cpu_inference(tensor: Tensor) -> bool:
    """Tell whether plain code runs on a CPU and no gradient is wanted."""
    return tensor.is_cpu and not (torch.compiler.is_compiling() or torch.is_grad_enabled())


def in_parts(function: Callable[..., Tensor], *tensors: Tensor, at_once: int) -> Tensor:
    """Apply a function that treats every row alone to some rows after the other.

    All rows go at once where parts would not help: when gradients are wanted (what lies between is
    kept anyway), on other devices, and when torch compiles or exports the model.

    Args:
        function: maps tensors of (rows, …) to one of (rows, …).
        tensors: its arguments.
        at_once: rows of a part, at most.
    """
    first = tensors[0]
    if not is_cpu_inference(first) or len(first) <= at_once:
        return function(*tensors)
    num_parts = -(-len(first) // at_once)
    joined = None
    filled = 0
    for part in zip(*(tensor.chunk(num_parts) for tensor in tensors), strict=True):
        result = function(*part)
        if joined is None:
            joined = result.new_empty(len(first), *result.shape[1:])
        joined[filled : filled + len(result)] = result
        filled += len(result)
    assert joined is not None
    return joined
