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
        vision_tower,
    )
    from tokenselect.models import create_model, list_models
    from tokenselect.plan import SelectionPlan, Site
    from tokenselect.selectors import Selection
    from tokenselect.weights import load_weights

__version__ = "0.2.0.dev0"

__all__ = [
    "KeptTokens", "Preprocessor", "Selection", "SelectionPlan", "Site", "TokenGrid",
    "count_tokens", "create_model", "explain", "insert_selectors", "list_models", "load_model",
    "load_selectors", "load_weights", "optimize_for_inference", "plan_of", "push_to_hub",
    "record_kept", "record_selections", "remove_selectors", "save_model", "save_pretrained",
    "set_plan", "set_sigma", "shrink_inputs", "supported_models", "vision_tower", "with_plan",
]  # fmt: skip

_NAMES_IN = {  # all others are in `insertion`
    "adapters": ["supported_models"],
    "checkpoints": ["load_model", "load_selectors", "plan_of", "save_model", "with_plan"],
    "checkpoints.hub": ["push_to_hub", "save_pretrained"],
    "grid": ["TokenGrid"],
    "inference.explain": ["explain"],
    "inference.memory": ["optimize_for_inference"],
    "inference.preprocessor": ["Preprocessor"],
    "models": ["create_model", "list_models"],
    "plan": ["SelectionPlan", "Site"],
    "selectors": ["Selection"],
    "weights": ["load_weights"],
}
_HOME_OF = {name: home for home, names in _NAMES_IN.items() for name in names}


def __getattr__(name: str) -> Any:
    if name not in __all__:
        raise AttributeError(f"module 'tokenselect' has no attribute {name!r}")
    value = getattr(import_module(f"tokenselect.{_HOME_OF.get(name, 'insertion')}"), name)
    globals()[name] = value
    return value


def __dir__() -> list[str]:
    return sorted({*globals(), *__all__})
