"""Video Swin of torchvision: blocks map (b, t, h, w, c) to the same."""

from collections.abc import Sequence
from itertools import accumulate
from typing import Any, cast

from torch import Tensor, nn

from tokenselect.adapters.adapter import Adapter, Arguments, Removable
from tokenselect.grid import TokenGrid
from tokenselect.plan import THW, SelectionPlan


class TorchvisionSwinAdapter(Adapter):
    """`torchvision.models.video.swin3d_t`, `swin3d_s` and `swin3d_b`.

    A site before the first block of a stage comes after the merging of patches.
    """

    def __init__(self, model: nn.Module) -> None:
        super().__init__(model)
        self.merged_after = [stage[-1] for stage in _stages(model)[:-1]]

    def blocks(self, model: nn.Module) -> Sequence[nn.Module]:
        """List the blocks of all stages."""
        return tuple(block for stage in _stages(model) for block in stage)

    def stage_starts(self, model: nn.Module) -> tuple[int, ...]:
        """Give the first block of each stage."""
        return (0, *accumulate(len(stage) for stage in _stages(model)[:-1]))

    def channels(self, block: nn.Module) -> int:
        """Give the width of the tokens that enter a block."""
        return cast(Tensor, cast(nn.Module, block.norm1).weight).shape[0]

    def read(self, arguments: Arguments, thw: THW | None) -> TokenGrid:
        """Flatten the patches."""
        return TokenGrid.from_patches(arguments.get(0, "x"))

    def write(self, grid: TokenGrid, arguments: Arguments) -> Arguments:
        """Put the patches back in their shape."""
        return arguments.put(0, "x", grid.patches)

    def out_thw(self, block: nn.Module, thw: THW) -> THW:
        """Give the grid that the next block gets."""
        t, h, w = thw
        is_last = any(block is last for last in self.merged_after)
        return (t, -(-h // 2), -(-w // 2)) if is_last else thw

    def attach(
        self, model: nn.Module, plan: SelectionPlan, grids: Sequence[THW]
    ) -> Sequence[Removable]:
        """Watch the blocks behind the first region: they must not fall below the window."""
        regions = [site.block for site in plan if site.kind == "S"]
        behind = self.blocks(model)[min(regions) :] if regions else ()
        return [block.register_forward_pre_hook(refuse_small_frames) for block in behind]


def refuse_small_frames(block: nn.Module, arguments: tuple[Any, ...]) -> None:
    """Refuse frames smaller than the window: there the block looks its relative biases up wrongly.

    It reads the first t·h·w rows and columns of a table made for the full window, which are those
    of other offsets unless rows and columns are complete. Fewer frames do no harm.
    """
    h, w = arguments[0].shape[2:4]
    _, rows, columns = cast(Any, block.attn).window_size
    if h < rows or w < columns:
        raise ValueError(
            f"region selection left frames of {h}×{w} patches for a block with windows of "
            f"{rows}×{columns}; torchvision's Swin3D reads wrong relative biases there: keep "
            "larger regions, select frames only, or use tokenselect's video_swin models"
        )


def _stages(model: nn.Module) -> list[nn.Sequential]:
    """List the stages, without the merging between them."""
    children = cast(nn.Sequential, model.features)
    return [stage for stage in children if isinstance(stage, nn.Sequential)]
