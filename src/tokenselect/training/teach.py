"""Teaching selectors: a scorer learns from a dense model, whose weights stay as they are.

The scorer learns, over stored features, what the model loses with choices drawn at random
(`training/choices.py`). Held-out clips then say how far to trust it: where it is no better than
evenly spread frames or the middle of the picture, those are kept.
"""

import logging
import math
from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass
from typing import Any, cast

import torch
from torch import Tensor, nn
from torch.utils.data import DataLoader, Subset

from tokenselect.insertion import insert_selectors, selectors_of, set_plan
from tokenselect.ops.anchors import average_anchors, default_stride
from tokenselect.plan import SelectionPlan, Site
from tokenselect.selectors import Selector
from tokenselect.selectors.taught import TaughtScoring
from tokenselect.training.choices import (
    Batch,
    Tries,
    frozen,
    labelled,
    losses_of,
    taught_scoring,
    taught_selectors,
    try_choices,
)
from tokenselect.training.data import ClipSet, single_views
from tokenselect.training.distributed import Processes

logger = logging.getLogger(__name__)

TAUGHT_CLIPS, HELD_OUT_CLIPS = 1000, 1000  # of a run, at most
EVENNESS = (0.0, 0.25, 0.5, 0.75, 1.0)


@dataclass(frozen=True)
class Lesson:
    """What one site was taught."""

    site: str  # as the plan writes it
    evenness: float  # share of uniform selection in the scores, chosen on held-out clips
    held_out: dict[float, float]  # evenness → mean loss of the model on the held-out clips


def teach_selectors(
    model: nn.Module,
    clips: Iterable[Batch],
    *,
    plan: SelectionPlan | str | None = None,
    held_out: Iterable[Batch] | None = None,
    uses_labels: bool = True,
    steps: int = 300,
    lr: float = 2e-3,
    seed: int = 0,
    tell: Callable[[str], object] = str,
) -> list[Lesson]:
    """Give a trained model selectors that keep what its answers depend on; nothing else changes.

    Sites are taught in the plan's order, each with those before it selecting already.

    Args:
        model: dense, or with selectors of the scorer "taught".
        clips: batches of (what the model takes, (b,) labels), the same ones in the same order each
            time they are gone through. Labels may be None without `uses_labels`.
        plan: what to keep before which block; None for that of the model's selectors.
        held_out: batches on which to choose how far the scorer is trusted; None takes every fifth
            batch of `clips` and learns from the others.
        uses_labels: losses are those of the labels; else of the dense model's own answers.
        steps: of the scorer, 64 clips each; more of them learn the noise of what is shown.
        lr: highest learning rate of the scorer.
        seed: of the scorer's beginning and of the order it sees clips in.
        tell: told what is being done.

    Returns:
        What each site was taught, in the plan's order.
    """
    plan = _prepare(model, plan)
    shown: Iterable[Batch] = clips
    if held_out is None:
        shown, held_out = _Part(clips, is_held_out=False), _Part(clips, is_held_out=True)
    was_training = model.training
    model.eval()
    with frozen(model):
        lessons = [
            _teach_site(
                model,
                plan,
                number,
                shown,
                held_out,
                uses_labels=uses_labels,
                steps=steps,
                lr=lr,
                seed=seed,
                tell=tell,
            )
            for number in range(len(plan))
        ]
    model.train(was_training)
    return lessons


def teach_at_start(
    model: nn.Module,
    *,
    clips: ClipSet,
    held_out: ClipSet,
    batch_size: int,
    workers: int,
    seed: int,
    processes: Processes,
) -> None:
    """Teach a run's selectors before its first step; all processes end with the same ones."""
    if processes.is_main:
        batches = [
            Shuffled(found, at_most=count, batch_size=batch_size, workers=workers, seed=seed)
            for found, count in ((clips, TAUGHT_CLIPS), (held_out, HELD_OUT_CLIPS))
        ]
        with torch.random.fork_rng():
            shown, held = batches
            lessons = teach_selectors(model, shown, held_out=held, seed=seed, tell=logger.info)
        for lesson in lessons:
            logger.info("%s was taught; %.0f %% uniform", lesson.site, 100 * lesson.evenness)
    if processes.count > 1:
        for value in taught_selectors(model).state_dict().values():
            torch.distributed.broadcast(value, src=0)


class Shuffled:
    """Batches of some clips, the same ones in the same order each time they are gone through."""

    def __init__(
        self, clips: ClipSet, *, at_most: int | None, batch_size: int, workers: int, seed: int
    ) -> None:
        order = torch.randperm(len(clips), generator=torch.Generator().manual_seed(seed))
        self.loader: DataLoader[Any] = DataLoader(
            Subset(clips.dataset, order[:at_most].tolist()),
            batch_size=batch_size,
            num_workers=workers,
            collate_fn=clips.collate,
        )

    def __iter__(self) -> Iterator[Batch]:
        return single_views(self.loader)


def _teach_site(
    model: nn.Module,
    plan: SelectionPlan,
    number: int,
    shown: Iterable[Batch],
    held_out: Iterable[Batch],
    *,
    uses_labels: bool,
    steps: int,
    lr: float,
    seed: int,
    tell: Callable[[str], object],
) -> Lesson:
    """Teach one site of a plan, those before it selecting already."""
    site = plan.sites[number]
    keep_all = Site(site.kind, site.block, 1.0)  # as dense as without it, but with its hooks
    set_plan(model, SelectionPlan((*plan.sites[:number], keep_all)))
    tell(f"{site}: asking the model what its answers depend on")
    found = try_choices(model, shown, site, uses_labels=uses_labels, seed=seed)
    tell(f"{site}: teaching the scorer with {len(found.features)} examples")
    scoring = taught_scoring(model, site)
    with torch.enable_grad():
        fit(scoring.network, found, steps=steps, lr=lr, seed=seed)
    bring_to_unit(cast(Selector, taught_selectors(model)[site.label]), site, found)
    set_plan(model, SelectionPlan(plan.sites[: number + 1]))
    tell(f"{site}: choosing between the taught scores and even ones")
    losses = compare_evenness(model, site, held_out, uses_labels=uses_labels)
    scoring.evenness.fill_(choose_evenness(losses))
    means = dict(zip(EVENNESS, losses.mean(dim=1).tolist(), strict=True))
    return Lesson(str(site), float(scoring.evenness), means)


def fit(network: nn.Module, shown: Tries, *, steps: int, lr: float, seed: int) -> None:
    """Teach a network what was shown."""
    for parameter in network.parameters():
        parameter.requires_grad_(True)
    generator = torch.Generator().manual_seed(seed)
    nn.init.trunc_normal_(network.score.weight, std=0.02, generator=generator)  # type: ignore[union-attr, arg-type]
    optimizer = torch.optim.AdamW(network.parameters(), lr=lr, weight_decay=0.05)
    count, device = len(shown.features), shown.features.device
    for step in range(steps):
        optimizer.param_groups[0]["lr"] = lr * 0.5 * (1 + math.cos(math.pi * step / steps))
        loss = shown.loss(network, torch.randint(count, (64,), generator=generator).to(device))
        optimizer.zero_grad(set_to_none=True)
        loss.backward()
        optimizer.step()


@torch.no_grad()
def bring_to_unit(selector: Selector, site: Site, shown: Tries) -> None:
    """Scale a taught network so that the scores of its candidates have a deviation of 1."""
    scoring = cast(TaughtScoring, selector.scoring)
    scores = torch.cat([scoring.network(part) for part in shown.features.split(256)])
    if site.kind == "S":
        h, w = shown.hw
        side = site.region_side(h, w)
        stride = getattr(selector, "stride", None) or default_stride((h, w), side)
        scores = average_anchors(scores.unflatten(-1, (h, w)), side, stride)
    if scores.shape[-1] > 1:
        scoring.network.score.weight.div_(scores.std(dim=-1).mean().clamp_min(1e-6))


@torch.no_grad()
def compare_evenness(
    model: nn.Module, site: Site, batches: Iterable[Batch], *, uses_labels: bool
) -> Tensor:
    """Measure every clip's loss with each share of uniform selection: (shares, clips).

    Without labels the loss is that of what the model answers before the site selects.
    """
    plan, scoring = taught_selectors(model).plan, taught_scoring(model, site)
    before = SelectionPlan(tuple(other for other in plan if other != site))
    found: list[list[Tensor]] = [[] for _ in EVENNESS]
    set_plan(model, before)
    for clips, labels in labelled(batches, model, uses_labels=uses_labels):
        set_plan(model, plan)
        for row, evenness in zip(found, EVENNESS, strict=True):
            scoring.evenness.fill_(evenness)
            row.append(losses_of(model, clips, labels))
        set_plan(model, before)
    set_plan(model, plan)
    if not found[0]:
        raise ValueError("held_out must hold at least one batch, got none: give more clips")
    return torch.stack([torch.cat(row) for row in found])


def choose_evenness(losses: Tensor) -> float:
    """Take the most even choice whose mean loss is within a standard error of the best one's."""
    behind = losses - losses[losses.mean(dim=1).argmin()]  # clip by clip
    error = behind.std(dim=1) / math.sqrt(max(losses.shape[1], 1))
    is_close = behind.mean(dim=1) <= error.nan_to_num(0.0)
    return max(share for share, close in zip(EVENNESS, is_close.tolist(), strict=True) if close)


class _Part:
    """Every fifth batch, or all others."""

    def __init__(self, batches: Iterable[Batch], *, is_held_out: bool) -> None:
        self.batches = batches
        self.is_held_out = is_held_out

    def __iter__(self) -> Iterator[Batch]:
        for number, batch in enumerate(self.batches):
            if (number % 5 == 4) == self.is_held_out:
                yield batch


def _prepare(model: nn.Module, plan: SelectionPlan | str | None) -> SelectionPlan:
    """Insert selectors that can be taught, or check those of the model; give the plan."""
    selectors = selectors_of(model)
    if plan is None and selectors is None:
        raise ValueError("plan must say what to keep: the model has no selectors of its own")
    if plan is not None:
        if selectors is not None:
            raise ValueError("the model has selectors already: leave plan out, or remove them")
        insert_selectors(model, plan, scorer="taught")
    found = taught_selectors(model).plan
    num_blocks = len(taught_selectors(model).adapter.blocks(model))
    for site in found:
        taught_scoring(model, site)
        if site.block >= num_blocks:
            raise ValueError(f"site {site} is after the last block, where nothing can be taught")
    return found
