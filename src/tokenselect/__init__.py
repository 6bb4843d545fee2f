"""Token selection for video transformers: keep the frames and regions that matter."""

from tokenselect.grid import TokenGrid
from tokenselect.insertion import (
    insert_selectors,
    record_selections,
    remove_selectors,
    set_sigma,
)
from tokenselect.models import create_model, list_models
from tokenselect.plan import SelectionPlan, Site
from tokenselect.selectors import Selection

__version__ = "0.1.0"

__all__ = [
    "Selection",
    "SelectionPlan",
    "Site",
    "TokenGrid",
    "create_model",
    "insert_selectors",
    "list_models",
    "record_selections",
    "remove_selectors",
    "set_sigma",
]
