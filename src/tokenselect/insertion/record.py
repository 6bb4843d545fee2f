"""Watching a model: what its selectors keep, and the grids that enter its blocks."""

from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any, cast

from torch import nn

from tokenselect.adapters import Adapter, Arguments
from tokenselect.insertion.grids import follow_grids
from tokenselect.insertion.insert import adapter_of, selectors_of
from tokenselect.plan import THW, SelectionPlan
from tokenselect.selectors import Selection, Selector


@contextmanager
def record_selections(model: nn.Module) -> Iterator[dict[str, Selection]]:
    """Watch a model's selectors: after each forward, the dict holds what every site kept.

    Yields:
        Site label ("T0", "S4") to `Selection`, in the plan's order, of the latest forward.
    """
    selectors = selectors_of(model)
    if selectors is None:
        raise ValueError("the model has no selectors: call insert_selectors(model, plan) first")
    selections: dict[str, Selection] = {}

    def remember(selection: Selection) -> None:
        selections[selection.site.label] = selection

    watched = [cast(Selector, selector) for selector in selectors.values()]
    previous = [selector.recorder for selector in watched]
    for selector in watched:
        selector.recorder = remember
    try:
        yield selections
    finally:
        for selector, recorder in zip(watched, previous, strict=True):
            selector.recorder = recorder


class GridNote:
    """Forward pre-hook on a block: notes the grid there.

    Args:
        adapter: reads the block's arguments.
        thw: the grid there by the plan.
        grids: takes the note.
    """

    def __init__(self, adapter: Adapter, thw: THW | None, grids: list[THW]) -> None:
        self.adapter = adapter
        self.thw = thw
        self.grids = grids

    def __call__(
        self, block: nn.Module, positional: tuple[Any, ...], named: dict[str, Any]
    ) -> None:
        """Note it; the arguments stay as they are."""
        self.grids.append(self.adapter.read(Arguments(positional, named), self.thw).thw)


@contextmanager
def watch_grids(model: nn.Module) -> Iterator[list[THW]]:
    """Note the grid of the embedding, then that which enters each block, of every forward."""
    selectors = selectors_of(model)
    adapter = adapter_of(model)
    plan = SelectionPlan() if selectors is None else selectors.plan
    blocks = adapter.blocks(model)
    expected = follow_grids(adapter, model, plan)[: len(blocks)]
    grids: list[THW] = []
    notes = [GridNote(adapter, grid.kept, grids) for grid in expected]
    notes = notes or [GridNote(adapter, None, grids)] * len(blocks)
    first = GridNote(adapter, expected[0].given if expected else None, grids)
    handles = [blocks[0].register_forward_pre_hook(first, prepend=True, with_kwargs=True)]
    for block, note in zip(blocks, notes, strict=True):
        handles.append(block.register_forward_pre_hook(note, with_kwargs=True))
    try:
        yield grids
    finally:
        for handle in handles:
            handle.remove()
