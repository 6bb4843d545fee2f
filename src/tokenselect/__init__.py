"""Token selection for video transformers: keep the frames and regions that matter.

The names below are imported when they are first used, so that `import tokenselect` is quick.
"""

from importlib import import_module
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from tokenselect.adapters import supported_models
    from tokenselect.checkpoints.model import load_model, save_model
    from tokenselect.grid import TokenGrid
    from tokenselect.inference.memory import optimize_for_inference
    from tokenselect.insertion import (
        KeptTokens,
        count_tokens,
        insert_selectors,
        record_kept,
        record_selections,
        remove_selectors,
        set_plan,
        set_sigma,
        shrink_inputs,
    )
    from tokenselect.models import create_model, list_models
    from tokenselect.plan import SelectionPlan, Site
    from tokenselect.selectors import Selection
    from tokenselect.weights import load_weights

__version__ = "0.1.0"

__all__ = [
    "KeptTokens",
    "Selection",
    "SelectionPlan",
    "Site",
    "TokenGrid",
    "count_tokens",
    "create_model",
    "insert_selectors",
    "list_models",
    "load_model",
    "load_weights",
    "optimize_for_inference",
    "record_kept",
    "record_selections",
    "remove_selectors",
    "save_model",
    "set_plan",
    "set_sigma",
    "shrink_inputs",
    "supported_models",
]

_HOME_OF = {
    "KeptTokens": "insertion",
    "Selection": "selectors",
    "SelectionPlan": "plan",
    "Site": "plan",
    "TokenGrid": "grid",
    "count_tokens": "insertion",
    "create_model": "models",
    "insert_selectors": "insertion",
    "list_models": "models",
    "load_model": "checkpoints.model",
    "load_weights": "weights",
    "optimize_for_inference": "inference.memory",
    "record_kept": "insertion",
    "record_selections": "insertion",
    "remove_selectors": "insertion",
    "save_model": "checkpoints.model",
    "set_plan": "insertion",
    "set_sigma": "insertion",
    "shrink_inputs": "insertion",
    "supported_models": "adapters",
}


def __getattr__(name: str) -> Any:
    if name not in _HOME_OF:
        raise AttributeError(f"module 'tokenselect' has no attribute {name!r}")
    value = getattr(import_module(f"tokenselect.{_HOME_OF[name]}"), name)
    globals()[name] = value
    return value


def __dir__() -> list[str]:
    return sorted({*globals(), *__all__})
