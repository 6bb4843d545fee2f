"""The adapter of our own backbones, whose blocks speak `TokenGrid` already."""

from collections.abc import Sequence
from typing import cast

from torch import Tensor, nn

from tokenselect.adapters.adapter import Adapter, Arguments
from tokenselect.grid import TokenGrid
from tokenselect.plan import THW


class OwnAdapter(Adapter):
    """Reads and writes nothing but the grid itself."""

    def blocks(self, model: nn.Module) -> Sequence[nn.Module]:
        """List the blocks."""
        return tuple(cast(nn.ModuleList, model.blocks))

    def stage_starts(self, model: nn.Module) -> tuple[int, ...]:
        """Give the first block of each stage."""
        return cast(tuple[int, ...], model.stage_starts)

    def channels(self, block: nn.Module) -> int:
        """Give the width of the tokens that enter a block."""
        return cast(int, block.in_channels)

    def read(self, arguments: Arguments, thw: THW | None) -> TokenGrid:
        """Take the grid."""
        return arguments.get(0, "grid")

    def write(self, grid: TokenGrid, arguments: Arguments) -> Arguments:
        """Put the grid in its place."""
        return arguments.put(0, "grid", grid)

    def embed_thw(self, model: nn.Module) -> THW | None:
        """Give the grid before block 0 at the input size the model was built for."""
        return model.embed_thw(*model.default_input)  # type: ignore[operator, misc]

    def out_thw(self, block: nn.Module, thw: THW) -> THW:
        """Give the grid after a block."""
        return block.out_thw(thw)  # type: ignore[operator]

    def has_class_attention(self, block: nn.Module) -> bool:
        """Tell whether the block has a class token."""
        return hasattr(block, "class_attention")

    def class_attention(self, block: nn.Module, grid: TokenGrid) -> Tensor:
        """Compute the class token's attention again from the block's input."""
        return block.class_attention(grid)  # type: ignore[operator]
