"""The grid before every block of a model, as a plan leaves it."""

from dataclasses import dataclass

from torch import nn

from tokenselect.adapters import Adapter
from tokenselect.plan import THW, SelectionPlan


@dataclass(frozen=True)
class BlockGrid:
    """What comes to a block and what its sites leave of it."""

    given: THW
    kept: THW


def follow_grids(adapter: Adapter, model: nn.Module, plan: SelectionPlan) -> list[BlockGrid]:
    """Follow the grid through a model, so that a count too large is refused now, not later.

    Returns:
        One per block and one for the site after the last; empty for a model whose usual input is
        not known.
    """
    thw = adapter.embed_thw(model)
    if thw is None:
        return []
    grids: list[BlockGrid] = []
    for index, block in enumerate((*adapter.blocks(model), None)):
        kept = thw
        for site in plan.before(index):
            kept = site.kept_thw(kept)
        grids.append(BlockGrid(thw, kept))
        thw = kept if block is None else adapter.out_thw(block, kept)
    return grids
