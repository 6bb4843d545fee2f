"""Models by name: one dict from name to builder."""

from collections.abc import Callable, Mapping
from difflib import get_close_matches
from pathlib import Path
from typing import Any

from torch import Tensor, nn

from tokenselect.backbones import mvit, video_swin
from tokenselect.insertion import insert_selectors
from tokenselect.plan import SelectionPlan
from tokenselect.selectors.build import DEFAULT_SCORER
from tokenselect.weights import fetch_public, load_weights, public_weights
from tokenselect.weights.public import is_repository

BUILDERS: tuple[Callable[..., nn.Module], ...] = (
    *(mvit.mvit_b16, mvit.mvit_b16_32x3, mvit.mvit_mini),
    *(video_swin.video_swin_t, video_swin.video_swin_s, video_swin.video_swin_b),
    *(video_swin.video_swin_b_w16, video_swin.video_swin_mini),
)
ASSETS = Path(__file__).parent / "assets"
GENERATED = "generated"  # weights in the package: pretrained on generated video alone
MODELS = {build.__name__: build for build in BUILDERS}


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
    scorer: str = DEFAULT_SCORER,
    weights: str | Path | Mapping[str, Tensor] | None = None,
    **kwargs: Any,
) -> nn.Module:
    """Build a model, insert selectors if there is a plan, and load weights if there are any.

    Args:
        name: one of `list_models()`.
        plan: what to keep before which block, for example "T0_0.6-S4_0.9"; None for dense.
        frames: frames of a clip; None for the model's own.
        size: side, or height and width, of a frame; None for the model's own.
        method: of selection; `insert_selectors` has more settings.
        scorer: of the learned methods; "paper" reproduces the paper, "released" loads the
            checkpoints of its authors.
        weights: the name of public ones, such as "kinetics400" (`tokenselect.weights.PUBLIC`);
            "generated", small models' own, pretrained on generated video; a file, a run's folder or
            a state dict, of ours or of another framework. None leaves them random.
        **kwargs: whatever else the model's builder takes, for example `drop_path`, `dropout` or
            `fit_windows`.
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
    model = MODELS[name](num_classes=num_classes, **given, **kwargs)
    insert_selectors(model, plan, method=method, scorer=scorer)
    if weights is not None:
        load_weights(model, find_weights(name, weights))
    return model


def find_weights(
    name: str, weights: str | Path | Mapping[str, Tensor]
) -> str | Path | Mapping[str, Tensor]:
    """Turn the name of weights into their file: in the package, or downloaded if need be."""
    if isinstance(weights, Mapping) or Path(weights).exists() or is_repository(weights):
        return weights
    known, packaged = public_weights(name), ASSETS / f"{GENERATED}_{name}.safetensors"
    names = [*known, *([GENERATED] if packaged.exists() else [])]
    if str(weights) in names:
        return packaged if str(weights) == GENERATED else fetch_public(known[str(weights)])
    listed = f"those of {name} are {', '.join(names)}"
    raise ValueError(f"weights {str(weights)!r} are neither a file nor a folder here; {listed}")
