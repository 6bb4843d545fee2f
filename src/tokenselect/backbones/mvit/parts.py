"""Work on a part of a batch at a time, so that what lies between stays in a CPU's cache."""

from collections.abc import Callable

import torch
from torch import Tensor

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
