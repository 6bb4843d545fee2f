"""Models for predictions: by name, from a checkpoint, or the one in the package."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace
from pathlib import Path

import torch
from torch import Tensor, nn

from tokenselect.data.class_names import read_class_names
from tokenselect.data.synthetic import CLASS_NAMES
from tokenselect.models import create_model, find_weights
from tokenselect.prediction.clip_rule import ClipRule, rule_of_model, rule_of_recipe
from tokenselect.prediction.loaded import SELECTORS, LoadedModel
from tokenselect.pretrained.saved import build_described
from tokenselect.weights import load_weights, public_weights, read_weights
from tokenselect.weights.formats import convert
from tokenselect.weights.released import is_scorer

EMBEDDED = Path(__file__).parents[1] / "assets" / "synthetic_mvit_mini.safetensors"
DEFAULT_MODEL, DEFAULT_PLAN = "mvit_mini", "T0_0.6-S4_0.5"
Size = int | tuple[int, int]


def open_model(
    name: str | None = None,
    *,
    checkpoint: str | Path | None = None,
    weights: str | None = None,
    plan: str | None = None,
    method: str | None = None,
    class_names: str | Path | None = None,
    size: Size | None = None,
    device: str = "cpu",
) -> LoadedModel:
    """Build a model for predictions.

    Args:
        name: of a model; None for a checkpoint's.
        checkpoint: a run's folder, a checkpoint's folder or a file that says what it is of; None,
            where no name is given either, for the one in the package.
        weights: of a named model, as `create_model` takes them; None for random ones.
        plan: in place of the checkpoint's; of a named model, None for dense.
        method: in place of the checkpoint's.
        class_names: file with one name a line, or JSON.
        size: of the frames that a named model sees, if not its own.
        device: where it runs.
    """
    if name is not None and checkpoint is not None:
        raise ValueError(f"give a model or a checkpoint, got {name!r} and {str(checkpoint)!r}")
    if weights is not None and name is None:
        raise ValueError(f"weights {weights!r} need the name of their model, --model")
    if checkpoint is None and name is None and EMBEDDED.is_file():
        checkpoint = EMBEDDED
    if checkpoint is not None:
        loaded = from_checkpoint(checkpoint, plan=plan, method=method)
    elif name is not None and weights is not None:
        loaded = from_weights(name, weights, plan=plan, method=method, size=size)
    else:
        loaded = from_name(name, plan=plan, method=method, size=size)
    loaded.model.to(torch.device(device))
    return loaded if class_names is None else name_classes(loaded, class_names)


def name_classes(loaded: LoadedModel, class_names: str | Path) -> LoadedModel:
    """Take the names of the classes from a file."""
    names = read_class_names(class_names)
    if len(names) != len(loaded.class_names):
        raise ValueError(
            f"{class_names} has {len(names)} class names, the model {len(loaded.class_names)} "
            "classes"
        )
    return replace(loaded, class_names=names)


def from_name(
    name: str | None, *, plan: str | None, method: str | None, size: Size | None
) -> LoadedModel:
    """Build a model with random weights, the same ones each time."""
    is_default = name is None
    name = name or DEFAULT_MODEL
    plan = DEFAULT_PLAN if plan is None and is_default else plan
    method = method or "stts"
    names = list(CLASS_NAMES) if is_default else number_classes(400)
    with torch.random.fork_rng(devices=[]):
        torch.manual_seed(0)
        model = create_model(name, plan=plan, num_classes=len(names), size=size, method=method)
    rule = own_rule(name, model)
    if is_default:
        rule = replace(rule, stride=None)
    note = f"{name} has random weights: its labels mean nothing, its costs are right"
    return LoadedModel(name, model.eval(), names, rule, [note], {"method": method})


def from_weights(
    name: str, weights: str, *, plan: str | None, method: str | None, size: Size | None
) -> LoadedModel:
    """Build a named model with weights from a file or published ones."""
    published = public_weights(name).get(weights)
    state, _ = read_weights(find_weights(name, weights))  # type: ignore[arg-type]
    method, scorer = method or "stts", "released" if any(map(is_scorer, state)) else "paper"
    if plan is None and published is not None:
        plan = published.plan
    count = count_classes(name, state)
    model = create_model(
        name, plan=plan, num_classes=count, size=size, method=method, scorer=scorer
    )
    initial = set(load_weights(model, state).initial)
    trained = {
        key: value
        for key, value in model.state_dict().items()
        if key.startswith(SELECTORS) and key not in initial
    }
    names, rule = number_classes(count), own_rule(name, model)
    selection = {"method": method, "scorer": scorer}
    return LoadedModel(name, model.eval(), names, rule, [], selection, trained or None)


def count_classes(name: str, state: Mapping[str, Tensor]) -> int:
    """Count the outputs of weights of any layout."""
    with torch.device("meta"):
        model = create_model(name)
    return len(convert(dict(state), model)[1]["classifier.bias"])


def from_checkpoint(path: str | Path, *, plan: str | None, method: str | None) -> LoadedModel:
    """Build the model of a checkpoint from what its file says of it."""
    weights, metadata = read_weights(path)
    described = metadata.get("model")
    if not isinstance(described, Mapping):
        raise ValueError(
            f"{path} holds weights but not what builds their model: give it as --weights and its "
            "name as --model"
        )
    selection = {"method": "stts", **described.get("selection", {})}
    model = build_described(described, plan="dense")
    backbone = {key: value for key, value in weights.items() if not key.startswith(SELECTORS)}
    model.load_state_dict(backbone)
    trained = {key: value for key, value in weights.items() if key.startswith(SELECTORS)}
    name = described["name"]
    names = list(metadata.get("class_names") or number_classes(described["num_classes"]))
    recipe = metadata.get("recipe")
    rule = rule_of_recipe(recipe["data"]) if recipe else own_rule(name, model)
    dense = LoadedModel(name, model.eval(), names, rule, [], selection, trained)
    return dense.with_plan(described.get("plan") if plan is None else plan, method=method)


def number_classes(count: int) -> list[str]:
    """Name classes by their numbers."""
    return [f"class {number}" for number in range(count)]


def own_rule(name: str, model: nn.Module) -> ClipRule:
    """Give the published input of a model at the size it was built for."""
    return rule_of_model(name, model.default_input)  # type: ignore[arg-type]
