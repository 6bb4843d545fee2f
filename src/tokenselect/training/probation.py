"""Taught choices on probation: the weights learn from them and from even ones by turns.

A dense model is used to whole clips. What it prefers of a clip's parts can turn round once its
weights have learnt from parts, so held-out clips are asked a second time.
"""

from collections.abc import Iterable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass

from torch import nn

from tokenselect.selectors.taught import TaughtScoring
from tokenselect.training import choices
from tokenselect.training.distributed import main_process_says
from tokenselect.training.teach import EVEN, choose_trust

SHARE = 0.3  # of a run's steps


@dataclass(frozen=True)
class Probation:
    """The first steps of a run, in which taught scorings and even ones take turns."""

    model: nn.Module  # with taught selectors
    held_out: Iterable[choices.Shown]  # the same in every process
    steps: int

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

    def end(self) -> Iterator[str]:
        """Let each site keep what it was taught if that is clearly better still; say which do."""
        self.model.eval()
        for site, scoring in self.scorings.items():
            if not scoring.is_even:
                yield f"{site}: comparing taught selection with even selection on held-out clips"
                ways = [scoring.trusted, EVEN]
                choose_trust(self.model, scoring, self.held_out, ways=ways)
                scoring.trust(*(EVEN if main_process_says(scoring.is_even) else ways[0]))
                yield f"{site}: {'even' if scoring.is_even else 'taught'} selection from here on"
