"""Token selection for video transformers: keep the frames and regions that matter."""

from tokenselect.adapters import supported_models
from tokenselect.checkpoints.model import load_model, save_model
from tokenselect.grid import TokenGrid
from tokenselect.inference.memory import optimize_for_inference
from tokenselect.insertion import (
    insert_selectors,
    record_selections,
    remove_selectors,
    set_plan,
    set_sigma,
)
from tokenselect.models import create_model, list_models
from tokenselect.plan import SelectionPlan, Site
from tokenselect.selectors import Selection
from tokenselect.weights import load_weights

__version__ = "0.1.0"

__all__ = [
    "Selection",
    "SelectionPlan",
    "Site",
    "TokenGrid",
    "create_model",
    "insert_selectors",
    "list_models",
    "load_model",
    "load_weights",
    "optimize_for_inference",
    "record_selections",
    "remove_selectors",
    "save_model",
    "set_plan",
    "set_sigma",
    "supported_models",
]
