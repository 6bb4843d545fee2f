"""Teaching selectors: a scorer learns from a dense model, whose weights stay as they are.

The scorer learns, over stored features, what the model loses with choices that are drawn at random,
then with more that are drawn where it would look (`training/choices.py`), and which frames repeat
each other. Held-out clips say how far to trust it: where it is no better than evenly spread frames
or the middle of the picture, those are kept; and whether regions may move from frame to frame.
"""

import math
from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass, replace
from functools import partial

import torch
from torch import Tensor, nn
from torch.utils.data import Subset

from tokenselect.insertion import insert_selectors, selectors_of, set_plan
from tokenselect.plan import SelectionPlan, Site
from tokenselect.selectors.taught import FrameNetwork
from tokenselect.training import choices
from tokenselect.training.data import ClipSet, single_views
from tokenselect.training.optimizer import set_lr

MOST_CLIPS = 2000  # of a run, to teach with, and as many to choose by
EVENNESS, STEADINESS = (0.0, 0.25, 0.5, 0.75), (0.0, 1.0)
Way = tuple[float, float]  # of a scoring: evenness and steadiness
EVEN: Way = (1.0, 1.0)  # uniform selection
DROPOUT = 0.3  # of a scorer's features while it learns
FASTER = 10.0  # how frames that repeat each other are learnt, beside the scores
CLEAR, LATER, BRIEF = 3.0, 2.0, 1.0  # errors to beat even selection by: new, known, on probation


@dataclass(frozen=True)
class Lesson:
    """What one site was taught."""

    site: str  # as the plan writes it
    evenness: float  # share of uniform selection in the scores, chosen on held-out clips
    steadiness: float  # 1 keeps a region in its place, 0 lets it move from frame to frame
    loss: float  # chance of a wrong answer, mean of the held-out clips
    uniform_loss: float  # that of uniform selection


def teach_selectors(
    model: nn.Module,
    clips: Iterable[choices.Shown],
    *,
    plan: SelectionPlan | str | None = None,
    held_out: Iterable[choices.Shown] | None = None,
    uses_labels: bool = True,
    again: bool = False,
    on_probation: bool = False,
    steps: int = 600,
    lr: float = 2e-3,
    seed: int = 0,
    tell: Callable[[str], object] = str,
) -> list[Lesson]:
    """Give a trained model selectors that keep what its answers depend on; nothing else changes.

    Sites are taught in the plan's order, each with those before it selecting already. The lessons
    come in that order.

    Args:
        model: dense, or with selectors of the scorer "taught".
        clips: batches of (what the model takes, (b,) labels), the same ones in the same order each
            time they are gone through. Labels may be None without `uses_labels`.
        plan: what to keep before which block; None for that of the model's selectors.
        held_out: batches on which to choose how far the scorer is trusted; None takes every fifth
            batch of `clips` and learns from the others.
        uses_labels: losses are those of the labels; else of the dense model's own answers.
        again: taught before: uniform ones stay, others are trusted at least as far, or not at all.
        on_probation: held-out clips will be asked once more, by weights that have learnt from both;
            till then taught selection need not be clearly better than uniform selection.
        steps: of the scorer, 64 clips each; more of them learn the noise of what is shown.
        lr: highest learning rate of the scorer.
        seed: of the scorer's beginning and of the order it sees clips in.
    """
    plan = _prepare(model, plan)
    if held_out is None:
        clips, held_out = _Part(clips, is_held_out=False), _Part(clips, is_held_out=True)
    was_training = model.training
    model.eval()
    margin = LATER if again else BRIEF if on_probation else CLEAR
    choose = partial(choose_trust, uses_labels=uses_labels, margin=margin)
    lessons = []
    for number, site in enumerate(plan.sites):
        scoring = choices.taught_scoring(model, site)
        ways = ways_of(site, known=scoring.trusted if again else None)
        if again and scoring.is_even:
            continue
        keep_all = Site(site.kind, site.block, 1.0)  # dense, but with its hooks
        set_plan(model, SelectionPlan((*plan.sites[:number], keep_all)))
        tell(f"{site}: asking the model what its answers depend on")
        found = choices.watch_clips(model, clips, site, uses_labels=uses_labels, seed=seed)
        scores = found.members.sum(dim=1)  # all 0: the first choices are drawn blindly
        for part in (steps // 2, steps):
            found = choices.try_choices(model, clips, site, found, scores=scores, seed=seed + part)
            tell(f"{site}: teaching the scorer with {len(found.features)} examples")
            with torch.enable_grad():
                fit(scoring.network, found, steps=part, lr=lr, seed=seed)
            scores = bring_to_unit(scoring.network, found)
        set_plan(model, SelectionPlan(plan.sites[: number + 1]))
        tell(f"{site}: comparing taught selection with even selection on held-out clips")
        lessons.append(choose(model, site, held_out, ways=ways))
    set_plan(model, plan)
    model.train(was_training)
    return lessons


def share_selectors(model: nn.Module) -> None:
    """Give every process the main one's selectors; of sharded ones, how far they are trusted."""
    if torch.distributed.is_initialized():
        selectors = choices.taught_selectors(model)
        own = {k: v for k, v in selectors.state_dict().items() if not hasattr(v, "to_local")}
        for value in own.values():
            torch.distributed.broadcast(value, src=0)
        selectors.load_state_dict(own, strict=False)  # what follows from it follows everywhere


def ways_of(site: Site, *, known: Way | None) -> list[Way]:
    """Give the ways to choose from: all, or those that are no more even than the `known` one."""
    most, *steadiness = known or (1.0, *(STEADINESS if site.kind == "S" else STEADINESS[1:]))
    shares = [share for share in EVENNESS if share <= most]
    return [*((share, steady) for share in shares for steady in steadiness), EVEN]


class Shuffled:
    """Batches of some clips, the same ones in the same order each time they are gone through."""

    def __init__(
        self, clips: ClipSet, *, at_most: int | None, batch_size: int, workers: int, seed: int
    ) -> None:
        order = torch.randperm(len(clips), generator=torch.Generator().manual_seed(seed))
        chosen = replace(clips, dataset=Subset(clips.dataset, order[:at_most].tolist()))
        self.loader = chosen.batches(batch_size, workers=workers)

    def __iter__(self) -> Iterator[choices.Shown]:
        return single_views(self.loader)


def fit(network: nn.Module, shown: choices.Tries, *, steps: int, lr: float, seed: int) -> None:
    """Teach a network what was shown."""
    network.requires_grad_(True)
    spacing = [network.repetition.requires_grad_()] if isinstance(network, FrameNetwork) else []
    groups = [{"params": [*network.parameters()], "factor": 1}]
    groups += [{"params": spacing, "factor": FASTER}]
    optimizer = torch.optim.AdamW(groups, weight_decay=0.05)
    count, device = len(shown.features), shown.features.device
    with torch.random.fork_rng():
        torch.manual_seed(seed)
        nn.init.trunc_normal_(network.score.weight, std=0.02)  # type: ignore[union-attr, arg-type]
        for step in range(steps):
            set_lr(optimizer, lr * 0.5 * (1 + math.cos(math.pi * step / steps)))
            rows = torch.randint(count, (64,), device=device)
            loss = shown.loss(network, rows, dropout=DROPOUT)
            optimizer.zero_grad(set_to_none=True)
            loss.backward()
            optimizer.step()
            for repetition in spacing:
                repetition.data.clamp_min_(0)
    for repetition in spacing:  # a buffer again
        repetition.requires_grad_(False)


@torch.no_grad()
def bring_to_unit(network: nn.Module, shown: choices.Tries) -> Tensor:
    """Scale a network so that a clip's scores have a deviation of 1; give them: (clips, l)."""
    parts = torch.arange(len(shown.features)).split(256)
    scores = torch.cat([shown.score(network, rows) for rows in parts])
    unit = scores.std(dim=1).mean().clamp_min(1e-6) if scores.shape[1] > 1 else 1.0
    network.score.weight.div_(unit)  # type: ignore[union-attr, operator]
    if isinstance(network, FrameNetwork):
        network.repetition.div_(unit)
    return scores / unit


@torch.no_grad()
def choose_trust(
    model: nn.Module,
    site: Site,
    held_out: Iterable[choices.Shown],
    *,
    ways: Sequence[Way],
    uses_labels: bool = True,
    margin: float = LATER,
) -> Lesson:
    """Set how far the scores of a plan's last site count: the best of `ways` by held-out clips.

    It has to be better than uniform selection, the last of them, by `margin` standard errors.
    Without labels the loss is that of what the model answers before the site selects.
    """
    plan, scoring = choices.taught_selectors(model).plan, choices.taught_scoring(model, site)
    before, found = SelectionPlan(plan.sites[:-1]), [list[Tensor]() for _ in ways]
    set_plan(model, before)
    for clips, labels in choices.labelled(held_out, model, uses_labels=uses_labels):
        set_plan(model, plan)
        for row, way in zip(found, ways, strict=True):
            scoring.trust(*way)
            row.append(choices.losses_of(model, clips, labels))
        set_plan(model, before)
    set_plan(model, plan)
    if not found[0]:
        raise ValueError("held_out must hold at least one batch, got none: give more clips")
    losses = torch.stack([torch.cat(row) for row in found])  # (ways, clips)
    best = choose_way(losses, ways, margin=margin)
    scoring.trust(*ways[best])
    return Lesson(str(site), *ways[best], *losses.mean(dim=1)[[best, -1]].tolist())


def choose_way(losses: Tensor, ways: Sequence[Way], *, margin: float) -> int:
    """Take the best of the most cautious ways that the best one does not clearly beat."""
    means, clips = losses.mean(dim=1), losses.shape[1]  # of (ways, clips)
    behind = losses - losses[means.argmin()]  # clip by clip
    error = CLEAR * behind.std(dim=1, correction=min(1, clips - 1)) / math.sqrt(clips)
    error[-1] *= margin / CLEAR  # what it takes to leave even selection
    close = (behind.mean(dim=1) <= error).nonzero().flatten().tolist()
    return max(close, key=lambda way: (ways[way] == EVEN, ways[way][1], -float(means[way])))


@dataclass(frozen=True)
class _Part:
    """Every fifth batch, or all others."""

    batches: Iterable[choices.Shown]
    is_held_out: bool

    def __iter__(self) -> Iterator[choices.Shown]:
        return (x for i, x in enumerate(self.batches) if (i % 5 == 4) == self.is_held_out)


def _prepare(model: nn.Module, plan: SelectionPlan | str | None) -> SelectionPlan:
    """Insert selectors that can be taught, or check those of the model; give the plan."""
    selectors = selectors_of(model)
    if plan is None and selectors is None:
        raise ValueError("plan must say what to keep: the model has no selectors of its own")
    if plan is not None:
        if selectors is not None:
            raise ValueError("the model has selectors already: leave plan out, or remove them")
        insert_selectors(model, plan, scorer="taught")
    found = choices.taught_selectors(model).plan
    num_blocks = len(choices.taught_selectors(model).adapter.blocks(model))
    for site in found:
        choices.taught_scoring(model, site)
        if site.block >= num_blocks:
            raise ValueError(f"site {site} is after the last block, where nothing can be taught")
    return found
