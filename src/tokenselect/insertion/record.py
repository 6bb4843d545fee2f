"""Watching a model: what its selectors keep, and the grids that enter its blocks."""

from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from contextvars import ContextVar
from functools import partial
from typing import Any, cast

from torch import nn

from tokenselect.adapters import Arguments
from tokenselect.insertion.grids import follow_grids
from tokenselect.insertion.insert import adapter_of, inserted_selectors, selectors_of
from tokenselect.plan import THW, SelectionPlan
from tokenselect.selectors import Selection, Selector

_OPEN: ContextVar[frozenset[object]] = ContextVar("recordings of this thread or task")


@contextmanager
def listening(callback: Callable[..., None]) -> Iterator[Callable[..., None]]:
    """Give a callback that hears only of what happens inside the block, in this thread or task.

    Threads may run one model at a time: each hears of its own forwards.
    """
    recording = object()

    def hear(*told: Any) -> None:
        if recording in _OPEN.get(frozenset()):
            callback(*told)

    before = _OPEN.set(_OPEN.get(frozenset()) | {recording})
    try:
        yield hear
    finally:
        _OPEN.reset(before)


@contextmanager
def record_selections(model: nn.Module) -> Iterator[dict[str, Selection]]:
    """Watch a model's selectors: after each forward, the dict holds what every site kept.

    Only forwards of the thread, or task, that opened the block are recorded.

    Yields:
        Site label ("T0", "S4") to `Selection`, in the plan's order, of the latest forward.
    """
    selections: dict[str, Selection] = {}

    def remember(selection: Selection) -> None:
        selections[selection.site.label] = selection

    selectors = [cast(Selector, selector) for selector in inserted_selectors(model).values()]
    with listening(remember) as hear:
        for selector in selectors:
            selector.recorders.append(hear)
        try:
            yield selections
        finally:
            for selector in selectors:
                selector.recorders.remove(hear)


@contextmanager
def watch_grids(model: nn.Module) -> Iterator[list[THW]]:
    """Note the grid of the embedding, then that which enters each block, of every forward.

    Only forwards of the thread, or task, that opened the block are noted.
    """
    selectors, adapter = selectors_of(model), adapter_of(model)
    blocks = adapter.blocks(model)
    plan = SelectionPlan() if selectors is None else selectors.plan
    expected = follow_grids(adapter, model, plan)[: len(blocks)]
    first = expected[0].given if expected else None
    kept: Sequence[THW | None] = [grid.kept for grid in expected] or [None] * len(blocks)
    grids: list[THW] = []

    def note(
        thw: THW | None, block: nn.Module, positional: tuple[Any, ...], named: dict[str, Any]
    ) -> None:
        grids.append(adapter.read(Arguments(positional, named), thw).thw)

    with listening(note) as hear:
        before = partial(hear, first)
        handles = [blocks[0].register_forward_pre_hook(before, prepend=True, with_kwargs=True)]
        for block, thw in zip(blocks, kept, strict=True):
            hook = partial(hear, thw)
            handles.append(block.register_forward_pre_hook(hook, with_kwargs=True))
        try:
            yield grids
        finally:
            for handle in handles:
                handle.remove()
