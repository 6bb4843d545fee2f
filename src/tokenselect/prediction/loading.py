"""Models ready to look at videos: from a name, from a checkpoint, or the one in the package."""

from __future__ import annotations

import copy
import json
from collections.abc import Iterable
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any

import torch
from safetensors import safe_open
from safetensors.torch import load_file
from torch import Tensor, nn

from tokenselect.data.class_names import read_class_names
from tokenselect.data.synthetic import CLASS_NAMES
from tokenselect.insertion import insert_selectors, remove_selectors
from tokenselect.models import create_model
from tokenselect.plan import SelectionPlan
from tokenselect.prediction.clip_rule import ClipRule, rule_of_model, rule_of_recipe

EMBEDDED = Path(__file__).parents[1] / "assets" / "synthetic_mvit_mini.safetensors"
DEFAULT_MODEL, DEFAULT_PLAN = "mvit_mini", "T0_0.6-S4_0.5"
SELECTORS = "token_selectors."
UNLEARNED = ("random", "uniform", "attention", "motion", "novelty")


@dataclass(frozen=True)
class LoadedModel:
    """A model with all that its use needs.

    Attributes:
        name: of the model.
        model: in evaluation mode, with the selectors of `plan`.
        plan: what it selects.
        method: how.
        class_names: of its outputs.
        rule: how it wants its clips.
        notes: what whoever reads its answers must know.
        weights: of a checkpoint, among them trained selectors; empty for random weights.
    """

    name: str
    model: nn.Module
    plan: SelectionPlan
    method: str
    class_names: list[str]
    rule: ClipRule
    notes: list[str] = field(default_factory=list)
    weights: dict[str, Tensor] = field(default_factory=dict)

    def with_plan(self, plan: SelectionPlan | str, *, method: str | None = None) -> LoadedModel:
        """Give the same model under another plan; both share the backbone's weights."""
        plan, method = SelectionPlan.of(plan), method or self.method
        model = remove_selectors(share_weights(self.model))
        with torch.random.fork_rng(devices=[]):
            torch.manual_seed(0)
            insert_selectors(model, plan, method=method)
        fill_selectors(model, self.weights, plan)
        return replace(self, model=model.eval(), plan=plan, method=method)


def share_weights(model: nn.Module) -> nn.Module:
    """Copy a model but not its parameters and buffers."""
    shared = [*model.parameters(), *model.buffers()]
    return copy.deepcopy(model, {id(tensor): tensor for tensor in shared})


def fill_selectors(model: nn.Module, weights: dict[str, Tensor], plan: SelectionPlan) -> None:
    """Load trained selectors; a site at the same block serves whatever it keeps."""
    own = {name: value for name, value in model.state_dict().items() if name.startswith(SELECTORS)}
    if not weights or not own:
        return
    if not own.keys() <= weights.keys():
        untrained = ", ".join(_labels(own.keys() - weights.keys()))
        trained = ", ".join(_labels(name for name in weights if name.startswith(SELECTORS)))
        raise ValueError(
            f"plan {str(plan)!r} selects at {untrained}, where the checkpoint has no trained "
            f"selector (it has {trained or 'none'}); methods that need no training: "
            f"{', '.join(UNLEARNED)}"
        )
    model.load_state_dict({name: weights[name] for name in own}, strict=False)


def _labels(names: Iterable[str]) -> list[str]:
    """List the sites that parameters of selectors belong to."""
    return sorted({name.removeprefix(SELECTORS).split(".")[0] for name in names})


def open_model(
    name: str | None = None,
    *,
    checkpoint: str | Path | None = None,
    plan: str | None = None,
    method: str | None = None,
    class_names: str | Path | None = None,
    size: int | tuple[int, int] | None = None,
    device: str = "cpu",
) -> LoadedModel:
    """Build a model for predictions.

    Args:
        name: of a model with random weights; None for a checkpoint's.
        checkpoint: a run's folder, a checkpoint's folder or a .safetensors file; None, where no
            name is given either, for the one in the package.
        plan: in place of the checkpoint's.
        method: in place of the checkpoint's.
        class_names: file with one name a line, or JSON.
        size: of the frames that a named model sees, if not its own.
        device: where it runs.
    """
    if name is not None and checkpoint is not None:
        raise ValueError(f"give a model or a checkpoint, got {name!r} and {str(checkpoint)!r}")
    if checkpoint is None and name is None and EMBEDDED.is_file():
        checkpoint = EMBEDDED
    if checkpoint is not None:
        loaded = from_checkpoint(Path(checkpoint), plan=plan, method=method)
    else:
        loaded = from_name(name, plan=plan, method=method or "stts", size=size)
    loaded.model.to(torch.device(device))
    if class_names is None:
        return loaded
    names = read_class_names(class_names)
    if len(names) != len(loaded.class_names):
        raise ValueError(
            f"{class_names} has {len(names)} class names, the model {len(loaded.class_names)} "
            "classes"
        )
    return replace(loaded, class_names=names)


def from_name(
    name: str | None, *, plan: str | None, method: str, size: int | tuple[int, int] | None
) -> LoadedModel:
    """Build a model with random weights, the same ones each time."""
    is_default = name is None
    name = name or DEFAULT_MODEL
    chosen = SelectionPlan.of(DEFAULT_PLAN if plan is None and is_default else plan)
    class_count = len(CLASS_NAMES) if is_default else 400
    with torch.random.fork_rng(devices=[]):
        torch.manual_seed(0)
        model = create_model(name, plan=chosen, num_classes=class_count, size=size, method=method)
    names = list(CLASS_NAMES) if is_default else [f"class {n}" for n in range(class_count)]
    rule = rule_of_model(name, model.default_input)  # type: ignore[arg-type]
    if is_default:
        rule = replace(rule, stride=None)
    note = f"{name} has random weights: its labels mean nothing, its costs are right"
    return LoadedModel(name, model.eval(), chosen, method, names, rule, [note])


def from_checkpoint(path: Path, *, plan: str | None, method: str | None) -> LoadedModel:
    """Build the model of a checkpoint from what its file says of it."""
    weights, metadata = read_checkpoint(path)
    if "recipe" not in metadata:
        raise ValueError(f"{path} does not say what model it is of: it holds no recipe")
    recipe = metadata["recipe"]
    kind, data = recipe["model"], recipe["data"]
    chosen = SelectionPlan.of(kind["plan"] if plan is None else plan)
    method = method or kind["method"]
    model = create_model(
        kind["name"],
        plan=chosen,
        num_classes=metadata["num_classes"],
        frames=data["frames"],
        size=data["size"],
        method=method,
    )
    fill_selectors(model, weights, chosen)
    backbone = {name: value for name, value in weights.items() if not name.startswith(SELECTORS)}
    missing, unknown = model.load_state_dict(backbone, strict=False)
    wrong = [name for name in missing if not name.startswith(SELECTORS)] + unknown
    if wrong:
        raise ValueError(f"{path} does not fit {kind['name']}: {', '.join(sorted(wrong)[:5])}")
    names = list(metadata["class_names"])
    rule = rule_of_recipe(data)
    return LoadedModel(kind["name"], model.eval(), chosen, method, names, rule, [], weights)


def read_checkpoint(path: Path) -> tuple[dict[str, Tensor], dict[str, Any]]:
    """Read the weights and what is said of them: of a run its best, else its last."""
    places = [path, path / "model.safetensors"]
    places += [path / link / "model.safetensors" for link in ("best", "last")]
    file = next((place for place in places if place.is_file()), None)
    if file is None:
        raise FileNotFoundError(
            f"no checkpoint at {path}: give a run's folder, a checkpoint's folder or a "
            ".safetensors file"
        )
    try:
        with safe_open(file, framework="pt") as opened:
            text = opened.metadata() or {}
        return load_file(file), {key: parse_json(value) for key, value in text.items()}
    except Exception as error:  # safetensors raises its own class, which it does not export
        raise ValueError(f"{file} is no safetensors file: {error}") from error


def parse_json(text: str) -> Any:
    """Read JSON; text that is none stays as it is."""
    try:
        return json.loads(text)
    except json.JSONDecodeError:
        return text
