"""Token selection for video transformers: keep the frames and regions that matter.

The names below are imported when they are first used, so that `import tokenselect` is quick.
"""

from importlib import import_module
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from tokenselect.adapters import supported_models
    from tokenselect.checkpoints import load_model, load_selectors, plan_of, save_model, with_plan
    from tokenselect.checkpoints.hub import push_to_hub, save_pretrained
    from tokenselect.grid import TokenGrid
    from tokenselect.inference.explain import explain
    from tokenselect.inference.memory import optimize_for_inference
    from tokenselect.inference.preprocessor import Preprocessor
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

__version__ = "0.2.0.dev0"

__all__ = [
    "KeptTokens",
    "Preprocessor",
    "Selection",
    "SelectionPlan",
    "Site",
    "TokenGrid",
    "count_tokens",
    "create_model",
    "explain",
    "insert_selectors",
    "list_models",
    "load_model",
    "load_selectors",
    "load_weights",
    "optimize_for_inference",
    "plan_of",
    "push_to_hub",
    "record_kept",
    "record_selections",
    "remove_selectors",
    "save_model",
    "save_pretrained",
    "set_plan",
    "set_sigma",
    "shrink_inputs",
    "supported_models",
    "with_plan",
]

_HOME_OF = {
    "KeptTokens": "insertion",
    "Preprocessor": "inference.preprocessor",
    "Selection": "selectors",
    "SelectionPlan": "plan",
    "Site": "plan",
    "TokenGrid": "grid",
    "count_tokens": "insertion",
    "create_model": "models",
    "explain": "inference.explain",
    "insert_selectors": "insertion",
    "list_models": "models",
    "load_model": "checkpoints",
    "load_selectors": "checkpoints",
    "load_weights": "weights",
    "optimize_for_inference": "inference.memory",
    "plan_of": "checkpoints",
    "push_to_hub": "checkpoints.hub",
    "record_kept": "insertion",
    "record_selections": "insertion",
    "remove_selectors": "insertion",
    "save_model": "checkpoints",
    "save_pretrained": "checkpoints.hub",
    "set_plan": "insertion",
    "set_sigma": "insertion",
    "shrink_inputs": "insertion",
    "supported_models": "adapters",
    "with_plan": "checkpoints",
}


def __getattr__(name: str) -> Any:
    if name not in _HOME_OF:
        raise AttributeError(f"module 'tokenselect' has no attribute {name!r}")
    value = getattr(import_module(f"tokenselect.{_HOME_OF[name]}"), name)
    globals()[name] = value
    return value


def __dir__() -> list[str]:
    return sorted({*globals(), *__all__})
