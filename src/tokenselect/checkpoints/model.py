"""What belongs to a model: class names, clip rule, settings, trained selectors, and its plan."""

import copy
import hashlib
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field, replace
from itertools import chain
from typing import Any

import torch
from torch import Tensor, nn

from tokenselect.data.clips import ClipRule, rule_of_model, rule_of_recipe
from tokenselect.insertion import insert_selectors, remove_selectors, selectors_of
from tokenselect.plan import SELECTORS, SelectionPlan
from tokenselect.selectors.build import METHODS, has_parameters

DEFAULT_PLAN = "T0_0.6-S4_0.5"  # to begin with, where a model is dense
UNTRAINED = tuple(method for method in METHODS if not has_parameters(method))

Plan = SelectionPlan | str | None
Sides = int | tuple[int, int]


@dataclass(frozen=True, eq=False)
class ModelInfo:
    """All that belongs to a model and is not the module itself."""

    name: str  # the name that `create_model` knows it by
    id2label: Mapping[int, str]  # class number to class name
    clip_rule: ClipRule  # how the model wants its clips
    metadata: Mapping[str, Any] = field(default_factory=dict)  # recipe, results, license
    notes: tuple[str, ...] = ()  # what whoever reads its answers must know
    selection: Mapping[str, Any] = field(default_factory=dict)  # arguments of `insert_selectors`
    # parameters of trained selectors by name; None where nothing was trained, so that any plan is
    # as good as another
    trained: Mapping[str, Tensor] | None = None

    @property
    def label2id(self) -> dict[str, int]:
        """Class name to class number."""
        return {name: number for number, name in self.id2label.items()}

    @property
    def class_names(self) -> list[str]:
        """Class names in the order of the model's outputs."""
        return [self.id2label[number] for number in range(len(self.id2label))]

    def __deepcopy__(self, memo: dict[int, Any]) -> "ModelInfo":
        """Give itself: a copy of a model keeps what belongs to the model."""
        return self


def info_of(model: nn.Module) -> ModelInfo:
    """Give what is known about a model; of one that was not loaded, what its settings say."""
    info = getattr(model, "info", None)
    if isinstance(info, ModelInfo):
        return info
    settings, selectors = settings_of(model), selectors_of(model)
    names, rule = number_classes(settings["num_classes"]), rule_of(settings)
    selection = {} if selectors is None else selectors.settings
    trained = own_selectors(model) or None
    return ModelInfo(settings["name"], names, rule, selection=selection, trained=trained)


def plan_of(model: nn.Module) -> SelectionPlan:
    """Give the plan that a model selects by now; an empty one for a dense model."""
    selectors = selectors_of(model)
    return SelectionPlan() if selectors is None else selectors.plan


def method_of(model: nn.Module) -> str:
    """Give the method that a model selects by now; of a dense one, what it would select by."""
    return str(selection_of(model).get("method", "stts"))


def remarks_of(model: nn.Module) -> list[str]:
    """List the model's notes, and say if what it keeps means nothing."""
    info, plan = info_of(model), plan_of(model)
    is_arbitrary = bool(plan) and info.trained is None and method_of(model) not in UNTRAINED
    if info.notes or not is_arbitrary:
        return list(info.notes)
    return [f"the selectors of {plan} are not trained: what they keep is arbitrary"]


def with_plan(model: nn.Module, plan: Plan, *, method: str | None = None) -> nn.Module:
    """Give the same model under another plan; both share their weights.

    Args:
        model: of `load_model` or `create_model`; it stays as it is.
        plan: what to keep; "dense" or None for all. A trained selector serves whatever its site
            keeps; a site without one is refused.
        method: of selection, in place of the model's own.
    """
    info = info_of(model)
    selection = {**selection_of(model), **({"method": method} if method else {})}
    trained = None if info.trained is None else {**info.trained, **own_selectors(model)}
    shared = {id(tensor): tensor for tensor in chain(model.parameters(), model.buffers())}
    other = remove_selectors(copy.deepcopy(model, shared))
    return select(other, plan, replace(info, selection=selection, trained=trained))


def select(model: nn.Module, plan: Plan, info: ModelInfo) -> nn.Module:
    """Insert the selectors of a plan into a dense model: the trained ones, else always the same."""
    with torch.random.fork_rng(devices=[]):
        torch.manual_seed(0)
        insert_selectors(model, SelectionPlan.of(plan), **info.selection)
    if info.trained is not None:
        fill_selectors(model, info.trained)
    model.info = info  # type: ignore[assignment]
    return model


def fill_selectors(model: nn.Module, trained: Mapping[str, Tensor]) -> None:
    """Let a model's selectors share the trained parameters."""
    own = own_selectors(model)
    if missing := own.keys() - trained.keys():
        raise ValueError(
            f"plan {str(plan_of(model))!r} selects at {sites_of(missing)}, where the weights have "
            f"no trained selector (they have {sites_of(trained)}); methods that need no training: "
            f"{', '.join(UNTRAINED)}"
        )
    if other_size := [name for name in own if own[name].shape != trained[name].shape]:
        raise ValueError(
            f"the selector at {sites_of(other_size)} was trained for clips of another size: load "
            "the model without size"
        )
    for name, parameter in own.items():
        if isinstance(trained[name], nn.Parameter):
            parameter.requires_grad_(trained[name].requires_grad)
    shared = {name: trained[name].to(value) for name, value in own.items()}
    model.load_state_dict(shared, strict=False, assign=True)


def own_selectors(model: nn.Module) -> dict[str, Tensor]:
    """Give the parameters of a model's selectors, and the buffers that are saved, by name."""
    live = dict(chain(model.named_parameters(), model.named_buffers()))
    return {name: live[name] for name in model.state_dict() if name.startswith(SELECTORS)}


def sites_of(names: Iterable[str]) -> str:
    """List the sites that parameters of selectors belong to."""
    return ", ".join(sorted({n.removeprefix(SELECTORS).split(".")[0] for n in names})) or "none"


def selection_of(model: nn.Module) -> Mapping[str, Any]:
    """Give the settings of a model's selectors; of a dense model, those it would get."""
    selectors = selectors_of(model)
    return info_of(model).selection if selectors is None else selectors.settings


def weights_digest(model: nn.Module) -> str:
    """Give a short text that changes with any weight of a model, its selectors' included."""
    digest = hashlib.blake2b(digest_size=8)
    for name, tensor in sorted(model.state_dict().items()):
        digest.update(name.encode())
        digest.update(tensor.detach().cpu().flatten().view(torch.uint8).numpy())
    return digest.hexdigest()


def settings_of(model: nn.Module) -> dict[str, Any]:
    """Give the settings that build a model of ours again, without selectors."""
    settings = getattr(model, "settings", None)
    if not isinstance(settings, dict):
        raise ValueError(
            "model must come from create_model or a builder function, got a "
            f"{type(model).__name__}; its state_dict() can still be saved"
        )
    return dict(settings)


def describe_model(model: nn.Module) -> dict[str, Any]:
    """Give what rebuilds a model and its selectors, as plain values for JSON."""
    settings, selectors = settings_of(model), selectors_of(model)
    if selectors is not None:
        settings |= {"plan": str(selectors.whole_plan), "selection": dict(selectors.settings)}
    return settings


def rule_of(settings: Mapping[str, Any], recipe: Mapping[str, Any] | None = None) -> ClipRule:
    """Give the clips that a model was trained on, else the published ones, at the model's size."""
    frames, size = settings["frames"], settings["size"]
    height, width = (size, size) if isinstance(size, int) else size
    if recipe is None:
        return rule_of_model(settings["name"], (frames, height, width))
    return replace(rule_of_recipe(recipe["data"]), frames=frames, size=(height, width))


def number_classes(count: int) -> dict[int, str]:
    """Name classes by their numbers."""
    return {number: f"class {number}" for number in range(count)}
