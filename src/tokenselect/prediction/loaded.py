"""A model ready to look at videos, under any plan that it has selectors for."""

from __future__ import annotations

import copy
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field, replace
from typing import Any

import torch
from torch import Tensor, nn

from tokenselect.insertion import insert_selectors, remove_selectors
from tokenselect.insertion.insert import selectors_of
from tokenselect.plan import SelectionPlan
from tokenselect.prediction.clip_rule import ClipRule
from tokenselect.selectors.build import METHODS, has_parameters

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
