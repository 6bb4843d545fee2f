"""A model ready to look at videos, under any plan that it has selectors for."""

from __future__ import annotations

import copy
import json
import os
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any, cast

import torch
from safetensors.torch import save_file
from torch import Tensor, nn

from tokenselect.data.clips import ClipRule, rule_of_model, rule_of_recipe
from tokenselect.data.labels import read_class_names
from tokenselect.data.synthetic import CLASS_NAMES
from tokenselect.insertion import insert_selectors, remove_selectors, selectors_of
from tokenselect.models import create_model, find_weights
from tokenselect.plan import SelectionPlan
from tokenselect.selectors.build import METHODS, has_parameters
from tokenselect.weights import load_weights, public_weights, read_weights
from tokenselect.weights.files import WEIGHTS
from tokenselect.weights.formats import convert, is_scorer

SELECTORS = "token_selectors."
UNTRAINED = tuple(method for method in METHODS if not has_parameters(method))


@dataclass(frozen=True)
class LoadedModel:
    """A model with all that its use needs.

    Attributes:
        name: of the model.
        model: in evaluation mode, with the selectors of its plan.
        class_names: of its outputs.
        rule: how it wants its clips.
        notes: what whoever reads its answers must know.
        selection: how it selects, as `insert_selectors` takes it.
        trained: parameters of trained selectors by name; None where nothing was trained and any
            plan is as good as another.
    """

    name: str
    model: nn.Module
    class_names: list[str]
    rule: ClipRule
    notes: list[str] = field(default_factory=list)
    selection: Mapping[str, Any] = field(default_factory=dict)
    trained: Mapping[str, Tensor] | None = None

    @property
    def plan(self) -> SelectionPlan:
        """What it selects."""
        selectors = selectors_of(self.model)
        return SelectionPlan() if selectors is None else selectors.plan

    @property
    def method(self) -> str:
        """How it selects."""
        return str(self.selection.get("method", "stts"))

    @property
    def remarks(self) -> list[str]:
        """The notes, and whether what is kept means anything."""
        is_arbitrary = bool(self.plan) and self.trained is None and self.method not in UNTRAINED
        if self.notes or not is_arbitrary:
            return list(self.notes)
        return [f"the selectors of {self.plan} are not trained: what they keep is arbitrary"]

    def with_plan(
        self, plan: SelectionPlan | str | None, *, method: str | None = None
    ) -> LoadedModel:
        """Give the same model under another plan; both share the backbone's weights."""
        selection = {**self.selection, **({"method": method} if method else {})}
        model = remove_selectors(share_weights(self.model))
        with torch.random.fork_rng(devices=[]):
            torch.manual_seed(0)
            insert_selectors(model, SelectionPlan.of(plan), **selection)
        if self.trained is not None:
            fill_selectors(model, self.trained)
        return replace(self, model=model.eval(), selection=selection)


def share_weights(model: nn.Module) -> nn.Module:
    """Copy a model but not its parameters and buffers."""
    shared = [*model.parameters(), *model.buffers()]
    return copy.deepcopy(model, {id(tensor): tensor for tensor in shared})


def fill_selectors(model: nn.Module, trained: Mapping[str, Tensor]) -> None:
    """Load trained selectors; one at the same block serves whatever it keeps."""
    own = {name for name in model.state_dict() if name.startswith(SELECTORS)}
    missing = own - trained.keys()
    if missing:
        selectors = selectors_of(model)
        assert selectors is not None
        raise ValueError(
            f"plan {str(selectors.plan)!r} selects at {sites_of(missing)}, where the weights have "
            f"no trained selector (they have {sites_of(trained)}); methods that need no training: "
            f"{', '.join(UNTRAINED)}"
        )
    model.load_state_dict({name: trained[name] for name in own}, strict=False)


def sites_of(names: Iterable[str]) -> str:
    """List the sites that parameters of selectors belong to."""
    return ", ".join(sorted({n.removeprefix(SELECTORS).split(".")[0] for n in names})) or "none"


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
