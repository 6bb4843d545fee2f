"""Recording what the selectors of a model keep."""

from collections.abc import Iterator
from contextlib import contextmanager
from typing import cast

from torch import nn

from tokenselect.insertion.insert import selectors_of
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
