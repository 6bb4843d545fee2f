"""Taught choices on probation: the weights learn from them and from even ones by turns.

A dense model is used to whole clips. What it prefers of a clip's parts can turn round once its
weights have learnt from parts, so they teach a second time, and held-out clips are asked again.
"""

from collections.abc import Callable, Iterable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass

from torch import nn
from torch.distributed.fsdp import FSDPModule

from tokenselect.selectors.taught import TaughtScoring
from tokenselect.training import choices
from tokenselect.training.teach import EVEN, share_selectors, teach_selectors

SHARE = 0.3  # of a run's steps


@dataclass(frozen=True)
class Probation:
    """The first steps of a run, in which taught scorings and even ones take turns."""

    model: nn.Module  # with taught selectors
    clips: Iterable[choices.Shown]  # to teach with, the same in every process
    held_out: Iterable[choices.Shown]  # to choose by, likewise
    steps: int
    seed: int = 0  # of what is taught at its end

    @property
    def scorings(self) -> dict[str, TaughtScoring]:
        """Those of all sites that the plan has now."""
        plan = choices.taught_selectors(self.model).plan
        return {str(site): choices.taught_scoring(self.model, site) for site in plan}

    @contextmanager
    def turn(self, step: int) -> Iterator[None]:
        """Let all scorings select evenly during every other step of the probation."""
        chosen = self.scorings.values() if step < self.steps and step % 2 else ()
        before = {scoring: scoring.trusted for scoring in chosen}
        for scoring in before:
            scoring.trust(*EVEN)
        try:
            yield
        finally:
            for scoring, trusted in before.items():
                scoring.trust(*trusted)

    def end(self, tell: Callable[[str], object]) -> None:
        """Teach each site again; let it keep that if it is clearly better than even selection."""
        if isinstance(self.model, FSDPModule):  # whose parts are elsewhere
            tell("a sharded model does not teach its selectors again")
            return
        how = {"held_out": self.held_out, "seed": self.seed, "tell": tell}
        lessons = teach_selectors(self.model, self.clips, again=True, **how)  # type: ignore[arg-type]
        share_selectors(self.model)
        for lesson in lessons:
            kept = "even" if lesson.evenness == 1 else "taught"
            tell(f"{lesson.site}: {kept} selection from here on")
