"""Models by name: one dict from name to builder."""

from collections.abc import Callable
from difflib import get_close_matches

from torch import nn

from tokenselect.backbones.mvit import mvit_b16, mvit_b16_32x3, mvit_mini
from tokenselect.backbones.video_swin import (
    video_swin_b,
    video_swin_b_w16,
    video_swin_mini,
    video_swin_s,
    video_swin_t,
)
from tokenselect.insertion import insert_selectors
from tokenselect.plan import SelectionPlan

MODELS: dict[str, Callable[..., nn.Module]] = {
    "mvit_b16": mvit_b16,
    "mvit_b16_32x3": mvit_b16_32x3,
    "mvit_mini": mvit_mini,
    "video_swin_t": video_swin_t,
    "video_swin_s": video_swin_s,
    "video_swin_b": video_swin_b,
    "video_swin_b_w16": video_swin_b_w16,
    "video_swin_mini": video_swin_mini,
}


def list_models() -> list[str]:
    """List the names that `create_model` knows."""
    return list(MODELS)


def create_model(
    name: str,
    *,
    plan: SelectionPlan | str | None = None,
    num_classes: int = 400,
    frames: int | None = None,
    size: int | tuple[int, int] | None = None,
    method: str = "stts",
) -> nn.Module:
    """Build a model with random weights, and insert selectors if there is a plan.

    Args:
        name: one of `list_models()`.
        plan: what to keep before which block, for example "T0_0.6-S4_0.9"; None for dense.
        num_classes: outputs of the classifier.
        frames: frames of a clip; None for the model's own.
        size: side, or height and width, of a frame; None for the model's own.
        method: of selection; `insert_selectors` has more settings.
    """
    if name not in MODELS:
        close = get_close_matches(name, MODELS, n=1)
        hint = f" (did you mean {close[0]!r}?)" if close else ""
        raise ValueError(f"no model is called {name!r}{hint}; there are {', '.join(MODELS)}")
    if num_classes < 1:
        raise ValueError(f"num_classes must be at least 1, got {num_classes}")
    plan = SelectionPlan.of(plan)
    asked = {"frames": frames, "size": size}
    given = {key: value for key, value in asked.items() if value is not None}
    model = MODELS[name](num_classes=num_classes, **given)
    return insert_selectors(model, plan, method=method)
