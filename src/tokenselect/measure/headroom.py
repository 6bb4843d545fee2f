"""What a choice of frames or regions could win on some data, before anyone trains a selector.

A dense model answers every clip with many sets of frames (or with every region), weights as they
are. That shows what evenly spaced frames reach, what the best fixed set reaches, and what a choice
for each clip could reach.
"""

import random
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass
from itertools import combinations
from math import comb
from typing import cast

import torch
import torch.nn.functional as F
from torch import Tensor, nn

from tokenselect import insertion
from tokenselect.grid import TokenGrid
from tokenselect.measure.cost import be_silent
from tokenselect.measure.significance import Paired, compare_answers
from tokenselect.ops.anchors import Pair, count_anchors
from tokenselect.plan import SelectionPlan, Site
from tokenselect.selectors import Selector
from tokenselect.selectors.scoring import Scoring

SMALL = 0.02  # a gain below this is not worth a selector
Choice = tuple[int, ...]  # frames, or one anchor


@dataclass(frozen=True)
class Headroom:
    """What could be won at one site; shares of clips that are answered rightly."""

    site: str  # as a plan writes it
    num_clips: int  # that were answered
    num_choices: int  # sets of frames, or regions, that were tried
    dense: float  # with everything kept
    uniform: float  # with evenly spaced frames, or the region in the centre
    random: float  # mean over all choices
    # with the best choice for all clips, found on one half of them, tested on the other
    fixed: float
    best: Choice  # that choice, found on all clips
    chosen: float  # with the choice for each clip whose answer is nearest to the dense one's
    fixed_gain: Paired  # `fixed` over `uniform`, clip by clip
    chosen_gain: Paired  # `chosen` over `uniform`, clip by clip

    @property
    def advice(self) -> str:
        """Say in a sentence or two what to do."""
        kind = "evenly spaced frames" if self.site.startswith("T") else "the middle of the picture"
        if self.chosen_gain.high < SMALL or self.chosen_gain.difference <= 0:
            return f"Use `uniform`: choosing per clip is not much better than {kind}."
        text = (
            f"Choosing per clip could gain up to {100 * self.chosen_gain.difference:.1f} "
            f"points over {kind}: teach or train a selector."
        )
        if self.fixed_gain.is_better and self.fixed_gain.difference >= SMALL:
            text += (
                f" A fixed choice, {self.best}, already gains "
                f"{100 * self.fixed_gain.difference:.1f}: compare with `static`."
            )
        return text


def measure_headroom(
    model: nn.Module,
    batches: Iterable[tuple[Tensor, Tensor]],
    *,
    plan: SelectionPlan | str,
    choices: int = 32,
    seed: int = 0,
    on_batch: Callable[[int], object] = be_silent,
) -> Headroom:
    """Try many choices at one site with a dense model's weights as they are.

    Args:
        model: without selectors; it is given back so.
        batches: (b, 3, t, h, w) clips and (b,) labels.
        plan: one site, such as "T0=3" or "S2_0.3".
        choices: sets of frames to try at most, the even one among them; regions are all tried.
        on_batch: told the number of clips after each batch.
    """
    plan = SelectionPlan.of(plan)
    if len(plan) != 1:
        raise ValueError(f"plan must have one site, got {str(plan)!r}")
    if insertion.selectors_of(model) is not None:
        raise ValueError("model must be dense: call remove_selectors(model) first")
    was_training, device = model.training, next(model.parameters()).device
    model.eval()
    tried: list[Choice] = []
    answers, losses, dense = [], [], []
    try:
        for clips, labels in batches:
            clips, labels = clips.to(device), labels.to(device)
            with torch.no_grad():
                own = model(clips).argmax(dim=1)
                insertion.insert_selectors(model, plan, method="uniform")
                tried = tried or list_choices(model, clips, plan.sites[0], choices, seed)
                selector = cast(Selector, insertion.selectors_of(model)[plan.sites[0].label])  # type: ignore[index]
                found = []
                for choice in tried:
                    selector.scoring = Chosen(torch.tensor(choice))
                    found.append(model(clips))
            insertion.remove_selectors(model)
            logits = torch.stack(found, dim=1)  # (b, choices, classes)
            dense.append(own == labels)
            answers.append(logits.argmax(dim=2) == labels[:, None])
            targets = own[:, None].expand(-1, len(tried))
            losses.append(F.cross_entropy(logits.movedim(2, 1), targets, reduction="none"))
            on_batch(len(labels))
    finally:
        insertion.remove_selectors(model)
        model.train(was_training)
    if not dense:
        raise ValueError("batches must hold at least one clip, got none")
    shown = str(plan.sites[0])
    return sum_up(shown, tried, torch.cat(answers), torch.cat(losses), torch.cat(dense))


def list_choices(
    model: nn.Module, clips: Tensor, site: Site, choices: int, seed: int
) -> list[Choice]:
    """List what to try, uniform selection first."""
    with insertion.record_selections(model) as kept:
        model(clips)
    found = kept[site.label]
    even: Choice
    if site.kind == "S":
        even = (int(found.indices[0, 0]),)
        others = [(anchor,) for anchor in range(found.scores.shape[-1]) if (anchor,) != even]
        return [even, *others]
    t, even = found.thw_before[0], tuple(found.indices[0].tolist())
    keep = len(even)
    if comb(t, keep) <= choices:
        return [even, *(frames for frames in combinations(range(t), keep) if frames != even)]
    draw, drawn = random.Random(seed), dict.fromkeys([even])
    while len(drawn) < choices:
        drawn.setdefault(tuple(sorted(draw.sample(range(t), keep))))
    return list(drawn)


class Chosen(Scoring):
    """Keeps given frames, or a given anchor in every frame: (k,) for all clips, or (b, k)."""

    def __init__(self, choice: Tensor) -> None:
        super().__init__()
        self.choice = choice

    def score_frames(self, grid: TokenGrid, *, keep: int) -> Tensor:
        """Mark the frames."""
        return self.mark(grid, grid.thw[0])

    def score_anchors(self, grid: TokenGrid, *, side: Pair, stride: Pair) -> Tensor:
        """Mark the anchor in every frame."""
        down, across = count_anchors(grid.thw[1:], side, stride)
        return self.mark(grid, down * across)[:, None].expand(-1, grid.thw[0], -1)

    def mark(self, grid: TokenGrid, count: int) -> Tensor:
        """Give 1 to what is kept, 0 to the others: (b, count)."""
        scores = torch.zeros(grid.tokens.shape[0], count, device=grid.tokens.device)
        return scores.scatter(1, self.choice.to(scores.device).expand(len(scores), -1), 1.0)


def sum_up(
    site: str, tried: Sequence[Choice], answers: Tensor, losses: Tensor, dense: Tensor
) -> Headroom:
    """Compare uniform selection, the first choice, with the best fixed one and one for each clip.

    `answers` (clips, choices) and `dense` (clips,) say what was right; `losses` (clips, choices)
    say how far an answer is from the dense model's.
    """
    answers, losses, dense = answers.float().cpu(), losses.cpu(), dense.float().cpu()
    clips = torch.arange(len(answers))
    halves = [losses[half::2].mean(dim=0).argmin() for half in (0, 1) if len(losses) > half]
    fixed = torch.stack([halves[(number + 1) % len(halves)] for number in clips.tolist()])
    of_each = (answers[:, 0], answers[clips, fixed], answers[clips, losses.argmin(dim=1)])
    uniform, best, chosen = (["".join(str(int(right)) for right in own)] for own in of_each)
    return Headroom(
        site=site,
        num_clips=len(answers),
        num_choices=len(tried),
        dense=float(dense.mean()),
        uniform=float(of_each[0].mean()),
        random=float(answers.mean()),
        fixed=float(of_each[1].mean()),
        best=tried[int(losses.mean(dim=0).argmin())],
        chosen=float(of_each[2].mean()),
        fixed_gain=compare_answers(best, uniform),
        chosen_gain=compare_answers(chosen, uniform),
    )
