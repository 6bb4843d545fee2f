"""Puts selectors in front of a model's blocks, takes them out, and watches what they keep."""

from tokenselect.insertion.insert import (
    adapter_of,
    insert_selectors,
    remove_selectors,
    selectors_of,
    set_plan,
    set_sigma,
)
from tokenselect.insertion.language import count_tokens, shrink_inputs
from tokenselect.insertion.record import KeptTokens, record_kept, record_selections, watch_grids

__all__ = [
    "KeptTokens",
    "adapter_of",
    "count_tokens",
    "insert_selectors",
    "record_kept",
    "record_selections",
    "remove_selectors",
    "selectors_of",
    "set_plan",
    "set_sigma",
    "shrink_inputs",
    "watch_grids",
]
