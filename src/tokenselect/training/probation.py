"""What becomes of taught selection while the weights learn from it.

A dense model is used to whole clips. What it prefers of a clip's parts can turn round once its
weights have learnt from parts. So taught selection is on probation first, beside even selection,
until held-out clips are asked again; later, when the noise is over, the weights teach once more.
"""

from collections.abc import Callable, Iterable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from functools import partial

from torch import nn
from torch.distributed.fsdp import FSDPModule

from tokenselect.selectors.taught import TaughtScoring
from tokenselect.training import choices
from tokenselect.training.teach import EVEN, choose_trust, share_selectors, teach_selectors

SHARE, AGAIN = 0.3, 0.6  # of a run's steps: the probation, and those before the second lesson


@dataclass(frozen=True)
class Probation:
    """The first steps of a run, in which taught scorings and even ones take turns."""

    model: nn.Module  # with taught selectors
    clips: Iterable[choices.Shown]  # to teach with, the same in every process
    held_out: Iterable[choices.Shown]  # to choose by, likewise
    total_steps: int  # of the run
    seed: int = 0  # of what is taught again

    @property
    def steps(self) -> int:
        """How long it lasts."""
        return round(SHARE * self.total_steps)

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

    def is_due(self, step: int) -> bool:
        """Tell whether something is to be done before a step.

        A sharded model, whose parts are elsewhere, does not teach again.
        """
        is_again = step == round(AGAIN * self.total_steps)
        return step == self.steps or (is_again and not isinstance(self.model, FSDPModule))

    def teach(self, tell: Callable[[str], object], *, again: bool = False) -> None:
        """Let the weights teach the selectors; every process gets those of the main one."""
        teach = partial(teach_selectors, self.model, self.clips, held_out=self.held_out)
        lessons = teach(again=again, on_probation=not again, seed=self.seed, tell=tell)
        for lesson in lessons:
            tell(f"{lesson.site} was taught; {lesson.evenness:.0%} uniform")
        share_selectors(self.model)

    def look_back(self, step: int, tell: Callable[[str], object]) -> None:
        """End the probation, or teach again; what is clearly better than even selection stays."""
        if step == self.steps:
            self.choose(tell)
        else:
            self.teach(tell, again=True)
        for site, scoring in self.scorings.items():
            tell(f"{site}: {'even' if scoring.is_even else 'taught'} selection from here on")

    def choose(self, tell: Callable[[str], object]) -> None:
        """Let each site keep what it was taught if that is clearly better still."""
        self.model.eval()
        for site in choices.taught_selectors(self.model).plan:
            scoring = choices.taught_scoring(self.model, site)
            if not scoring.is_even:
                tell(f"{site}: comparing taught selection with even selection on held-out clips")
                choose_trust(self.model, site, self.held_out, ways=[scoring.trusted, EVEN])
        share_selectors(self.model)
