"""Watching a model: what its selectors keep, which tokens are left, and the grids of its blocks."""

from collections.abc import Callable, Iterable, Iterator, Sequence
from contextlib import ExitStack, contextmanager
from contextvars import ContextVar
from dataclasses import dataclass
from functools import partial
from typing import Any, cast

import torch
from torch import Tensor, nn

from tokenselect.adapters.adapter import Arguments, Named, Positional
from tokenselect.grid import TokenGrid
from tokenselect.insertion.hooks import follow_grids
from tokenselect.insertion.insert import adapter_of, host_of, inserted_selectors, selectors_of
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
def joined(pairs: Iterable[tuple[list[Any], Any]]) -> Iterator[None]:
    """Append a callback to each list, and take it out again at the end."""
    with ExitStack() as stack:
        for callbacks, one in pairs:
            callbacks.append(one)
            stack.callback(callbacks.remove, one)
        yield


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
    with listening(remember) as hear, joined((one.recorders, hear) for one in selectors):
        yield selections


@contextmanager
def watch_grids(model: nn.Module) -> Iterator[list[THW]]:
    """Note the grid of the embedding, then that which enters each block, of every forward.

    Only forwards of the thread, or task, that opened the block are noted.
    """
    selectors, adapter, host = selectors_of(model), adapter_of(model), host_of(model)
    blocks = adapter.blocks(host)
    plan = SelectionPlan() if selectors is None else selectors.plan
    expected = follow_grids(adapter, host, plan)[: len(blocks)]
    first = expected[0].given if expected else None
    kept: Sequence[THW | None] = [grid.kept for grid in expected] or [None] * len(blocks)
    grids: list[THW] = []

    def note(thw: THW | None, block: nn.Module, args: Positional, kwargs: Named) -> None:
        grids.append(adapter.read(Arguments(args, kwargs), thw).thw)

    with listening(note) as hear, ExitStack() as handles:  # each of which removes its hook
        before = partial(hear, first)
        pre = blocks[0].register_forward_pre_hook(before, prepend=True, with_kwargs=True)
        handles.enter_context(pre)
        for block, thw in zip(blocks, kept, strict=True):
            hook = block.register_forward_pre_hook(partial(hear, thw), with_kwargs=True)
            handles.enter_context(hook)
        yield grids


@dataclass(frozen=True)
class KeptTokens:
    """What all sites together left of a grid."""

    # (b, k) the patches that are left, in their order. A merged patch, or one blended while
    # training, counts as the one whose place it took
    indices: Tensor
    thw: THW  # the grid before the first site, which `indices` count in

    @property
    def mask(self) -> Tensor:
        """(b, t, h, w) true where a patch is left."""
        t, h, w = self.thw
        mask = self.indices.new_zeros(len(self.indices), t * h * w, dtype=torch.bool)
        return mask.scatter(1, self.indices, True).unflatten(1, self.thw)


@contextmanager
def record_kept(model: nn.Module) -> Iterator[list[KeptTokens]]:
    """Watch which tokens are left at the end, for callers that must keep something else in step.

    Only forwards of the thread, or task, that opened the block are followed.

    Yields:
        After each forward, one `KeptTokens` for the batch; for models that pack videos of
        different sizes into one sequence, one per video.
    """
    kept: list[KeptTokens] = []
    hooks = list(inserted_selectors(model).site_hooks)
    with listening(partial(_note, kept)) as hear:
        notes = ((hook.notes, partial(hear, index == 0)) for index, hook in enumerate(hooks))
        with joined(notes):
            yield kept


def _note(
    kept: list[KeptTokens], is_first: bool, before: Sequence[TokenGrid], after: Sequence[TokenGrid]
) -> None:
    """Follow the patches from the site before, or take their positions where they carry them."""
    if is_first:
        pairs = zip(before, after, strict=True)
        kept[:] = [KeptTokens(cast(Tensor, new.positions).detach(), old.thw) for old, new in pairs]
        return
    for index, (old, new) in enumerate(zip(before, after, strict=True)):
        places, known = cast(Tensor, new.positions).detach(), kept[index]
        if old.positions is None:
            t, h, w = old.thw
            if known.indices.shape[1] != t * h * w:
                raise ValueError(
                    "record_kept follows tokens from site to site, but this model's blocks change "
                    f"the grid between them: {known.indices.shape[1]} patches became {t * h * w}"
                )
            places = known.indices.gather(1, places)
        kept[index] = KeptTokens(places, known.thw)
