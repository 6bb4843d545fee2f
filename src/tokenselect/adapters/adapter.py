"""What insertion asks of a model family."""

from collections.abc import Sequence
from typing import Any

from torch import Tensor, nn

from tokenselect.grid import TokenGrid
from tokenselect.plan import THW

Arguments = tuple[Any, ...]


class Adapter:
    """Reads a block's arguments as a `TokenGrid` and writes a smaller grid back into them.

    One adapter serves one model, so it may remember what the arguments do not carry.

    Args:
        model: the model it is for.
    """

    def __init__(self, model: nn.Module) -> None:
        pass

    def blocks(self, model: nn.Module) -> Sequence[nn.Module]:
        """List the blocks that sites are counted by."""
        raise NotImplementedError

    def stage_starts(self, model: nn.Module) -> tuple[int, ...]:
        """Give the first block of each stage; a model without stages has one."""
        return (0,)

    def channels(self, block: nn.Module) -> int:
        """Give the width of the tokens that enter a block."""
        raise NotImplementedError

    def read(self, arguments: Arguments) -> TokenGrid:
        """Turn a block's positional arguments into a grid."""
        raise NotImplementedError

    def write(self, grid: TokenGrid, arguments: Arguments) -> Arguments:
        """Put a grid into a block's positional arguments."""
        raise NotImplementedError

    def embed_thw(self, model: nn.Module) -> THW | None:
        """Give the grid before block 0 for the model's usual input, or None if it is not known."""
        return None

    def out_thw(self, block: nn.Module, thw: THW) -> THW:
        """Give the grid after a block; asked only where `embed_thw` is known."""
        return thw

    def has_class_attention(self, block: nn.Module) -> bool:
        """Tell whether `class_attention` can be had of a block."""
        return False

    def class_attention(self, block: nn.Module, arguments: Arguments) -> Tensor:
        """Give the class token's attention in a block, on the grid after it: (b, t, h, w)."""
        raise NotImplementedError
