"""Saving a model and loading it again, from one file that any safetensors reader can open.

Its header holds JSON by name: `model` (what `create_model` and `insert_selectors` were told),
`class_names`, and whatever else is known: a recipe, results. Training's checkpoints are the same.
"""

from __future__ import annotations

import json
import os
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, cast

from safetensors.torch import save_file
from torch import Tensor, nn

from tokenselect.insertion import insert_selectors, selectors_of
from tokenselect.models import create_model
from tokenselect.plan import SelectionPlan
from tokenselect.weights import read_weights
from tokenselect.weights.files import WEIGHTS

SELECTORS = "token_selectors."


@dataclass(frozen=True)
class SavedModel:
    """A model from the disk, with what is known of it.

    Attributes:
        model: in evaluation mode.
        class_names: of its outputs; empty if they are not known.
        metadata: all of the file's header, `model` and `class_names` among it.
    """

    model: nn.Module
    class_names: tuple[str, ...] = ()
    metadata: Mapping[str, Any] = field(default_factory=dict)

    @property
    def plan(self) -> SelectionPlan:
        """What the model selects."""
        selectors = selectors_of(self.model)
        return SelectionPlan() if selectors is None else selectors.plan


def describe_model(model: nn.Module) -> dict[str, Any]:
    """Give what rebuilds a model of `create_model`, as plain values for JSON."""
    settings = getattr(model, "settings", None)
    if settings is None:
        raise ValueError(
            f"only models of create_model can be saved whole, and this {type(model).__name__} is "
            "not one: save its state_dict()"
        )
    selectors = selectors_of(model)
    if selectors is None:
        return dict(settings)
    return {**settings, "plan": str(selectors.whole_plan), "selection": dict(selectors.settings)}


def save_model(
    model: nn.Module,
    path: str | Path,
    *,
    class_names: Sequence[str] = (),
    metadata: Mapping[str, Any] | None = None,
) -> Path:
    """Write a model, whole or not at all.

    Args:
        model: of `create_model`, with whatever selectors it has now.
        path: a file, or a folder to write `model.safetensors` into.
        class_names: of its outputs, in order.
        metadata: anything else to keep, as JSON: a recipe, results.

    Returns:
        The file.
    """
    described = describe_model(model)
    if class_names and len(class_names) != described["num_classes"]:
        raise ValueError(
            f"class_names must be {described['num_classes']}, one an output, got {len(class_names)}"
        )
    path = Path(path)
    file = path if path.suffix == ".safetensors" else path / WEIGHTS
    file.parent.mkdir(parents=True, exist_ok=True)
    known = {**(metadata or {}), "model": described, "class_names": list(class_names)}
    text = {name: json.dumps(value) for name, value in known.items()}
    unfinished = file.with_name(f".{file.name}.{os.getpid()}")
    save_file(contiguous_weights(model), unfinished, metadata=text)
    os.replace(unfinished, file)
    return file


def contiguous_weights(model: nn.Module) -> dict[str, Tensor]:
    """Copy a model's weights to where safetensors can take them from."""
    return {n: value.detach().cpu().contiguous() for n, value in model.state_dict().items()}


def load_model(
    path: str | Path, *, plan: SelectionPlan | str | None = None, method: str | None = None
) -> SavedModel:
    """Build the model of a saved file or of a checkpoint that training has written.

    Args:
        path: a run's folder (its best is taken), a checkpoint's folder or a file.
        plan: in place of the saved one; a selector keeps its weights if it sits at the same site,
            whatever it keeps. "dense" removes all.
        method: of selection, in place of the saved one.
    """
    weights, metadata = read_weights(path)
    if not isinstance(metadata.get("model"), Mapping):
        raise ValueError(
            f"{path} holds weights but not what builds their model: use "
            "create_model(name, weights=…) for it"
        )
    model = build_described(metadata["model"], plan=plan, method=method)
    own = model.state_dict().keys()
    untrained = own - weights.keys()
    if untrained:
        sites = sorted({name.removeprefix(SELECTORS).split(".")[0] for name in untrained})
        raise ValueError(
            f"the plan selects at {', '.join(sites)}, where {path} "
            f"(plan {metadata['model'].get('plan', 'dense')!r}) has no trained selector"
        )
    model.load_state_dict({name: value for name, value in weights.items() if name in own})
    return SavedModel(model.eval(), tuple(metadata.get("class_names", ())), metadata)


def build_described(
    described: Mapping[str, Any],
    *,
    plan: SelectionPlan | str | None = None,
    method: str | None = None,
) -> nn.Module:
    """Build the model that `describe_model` described, with random weights."""
    size = described["size"]
    model = create_model(
        described["name"],
        num_classes=described["num_classes"],
        frames=described["frames"],
        size=size if isinstance(size, int) else (size[0], size[1]),
    )
    selection = dict(described.get("selection", {}))
    if method is not None:
        selection["method"] = method
    if selection.get("stride") is not None:
        selection["stride"] = tuple(selection["stride"])
    chosen = described.get("plan", "dense") if plan is None else plan
    return insert_selectors(model, cast(str, chosen), **selection)
