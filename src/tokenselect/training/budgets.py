"""One model for every budget: each step trains another plan, the selectors being the same."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import torch

from tokenselect.data import seeded_generator
from tokenselect.plan import SelectionPlan, Site

ANY = "any"
DEFAULT = (
    "T0_0.9",
    "T0_0.8",
    "T0_0.6",
    "T0_0.4",
    "T0_0.9-S4_0.9",
    "T0_0.8-S4_0.8",
    "T0_0.6-S4_0.9",
    "T0_0.6-S4_0.6",
    "T0_0.4-S4_0.6",
)
DRAW = 0x6275646765  # sets these draws apart from all others of a step


@dataclass(frozen=True)
class Budgets:
    """The plans that training draws from.

    Attributes:
        plans: at least one; the first is also the one that is validated.
    """

    plans: tuple[SelectionPlan, ...]

    @classmethod
    def of(cls, plans: Sequence[str]) -> Budgets:
        """Read plans; none stands for `DEFAULT`."""
        return cls(tuple(SelectionPlan.parse(plan) for plan in plans or DEFAULT))

    @property
    def whole(self) -> SelectionPlan:
        """Every site of any plan, with what the first plan that has it keeps there."""
        sites: dict[str, Site] = {}
        for plan in self.plans:
            for site in plan:
                sites.setdefault(site.label, site)
        return SelectionPlan(tuple(sites.values()))

    def at(self, seed: int, step: int) -> SelectionPlan:
        """Draw the plan of a step: it follows from seed and step, the same in all processes."""
        generator = seeded_generator(seed, step, DRAW)
        return self.plans[int(torch.randint(len(self.plans), (), generator=generator))]
