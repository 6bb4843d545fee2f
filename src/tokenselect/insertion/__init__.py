"""Puts selectors in front of a model's blocks, takes them out, and watches what they keep."""

from tokenselect.insertion.insert import (
    adapter_of,
    insert_selectors,
    remove_selectors,
    selectors_of,
    set_plan,
    set_sigma,
)
from tokenselect.insertion.language import count_tokens, shrink_inputs, vision_tower
from tokenselect.insertion.record import KeptTokens, record_kept, record_selections, watch_grids
