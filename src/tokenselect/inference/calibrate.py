"""Plans for a budget: what they cost on paper, and what recorded accuracies lead one to expect."""

import json
import math
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import cached_property
from itertools import groupby, islice, product
from pathlib import Path
from typing import Any, cast

import torch
from torch import Tensor, nn

from tokenselect.checkpoints.model import info_of, sites_of, with_plan
from tokenselect.grid import TokenGrid
from tokenselect.insertion import adapter_of
from tokenselect.measure.cost import Timing, count_macs, time_forwards
from tokenselect.plan import THW, SelectionPlan, Site

RATIOS = (0.9, 0.8, 0.7, 0.6, 0.5, 0.4, 0.3)  # to try at each site, from the largest
FEWEST = 3  # results from which others are estimated
MOST_ROUNDS = 4  # of timing before giving up on finding more
Sites = Sequence[tuple[str, int]]  # kind and block of each


@dataclass(frozen=True)
class Candidate:
    """What follows from a plan on paper."""

    gmacs: float  # of a forward, without the scorers (under 1 %)
    time_kept: float  # share of the frames, on average over the blocks
    space_kept: float  # share of each frame's patches, on average over the blocks

    @property
    def kept(self) -> float:
        """Share of the tokens, on average over the blocks."""
        return self.time_kept * self.space_kept


class _OneBlock(nn.Module):
    """A block as a module from tensor to tensor, so that its multiply-adds can be counted."""

    def __init__(self, block: nn.Module, thw: THW, num_prefix: int) -> None:
        super().__init__()
        self.block, self.thw, self.num_prefix = block, thw, num_prefix

    def forward(self, tokens: Tensor) -> Tensor:
        return self.block(TokenGrid(tokens, self.thw, self.num_prefix)).tokens


class CostModel:
    """Multiply-adds of one of our models under any plan: a block's follow from its grid alone."""

    def __init__(self, model: nn.Module) -> None:
        """Take a dense model."""
        self.model, self.video = model, cast(THW, model.default_input)
        self.blocks: Sequence[Any] = adapter_of(model).blocks(model)
        self.kinds = [repr(block) for block in self.blocks]  # of one kind: they cost the same

    @cached_property
    def dense(self) -> tuple[float, int, dict[tuple[str, THW], float]]:
        """GMACs of embedding and head, class tokens, and GMACs by kind of block and grid."""
        seen: list[int] = []
        first = self.blocks[0]
        handle = first.register_forward_pre_hook(lambda _, given: seen.append(given[0].num_prefix))
        counted = count_macs(self.model, 1, 3, *self.video)
        handle.remove()
        names = {id(module): name for name, module in self.model.named_modules()}
        gmacs = [counted.by_module[names[id(block)]] / 1e9 for block in self.blocks]
        places = zip(self.kinds, self.grids(), strict=True)
        return counted.gmacs - sum(gmacs), seen[0], dict(zip(places, gmacs, strict=True))

    def grids(self, plan: SelectionPlan | None = None) -> list[THW]:
        """Give the grid that enters each block."""
        thw = cast(THW, self.model.embed_thw(*self.video))  # type: ignore[operator]
        grids = []
        for index, block in enumerate(self.blocks):
            for site in plan.before(index) if plan is not None else ():
                thw = site.kept_thw(thw)
            grids.append(thw)
            thw = block.out_thw(thw)
        return grids

    def _block(self, index: int, thw: THW) -> float:
        """Count the GMACs of a block on a grid."""
        _, prefix, counted = self.dense
        if (key := (self.kinds[index], thw)) not in counted:
            one = _OneBlock(self.blocks[index], thw, prefix)
            shape = (1, prefix + math.prod(thw), self.blocks[index].in_channels)
            counted[key] = count_macs(one, *shape).gmacs
        return counted[key]

    def candidate(self, plan: SelectionPlan) -> Candidate:
        """Work out a plan's cost and what it keeps."""
        grids, whole = self.grids(plan), self.grids()
        pairs = list(zip(grids, whole, strict=True))
        gmacs = self.dense[0] + sum(self._block(n, thw) for n, thw in enumerate(grids))
        times = [own[0] / full[0] for own, full in pairs]
        spaces = [own[1] * own[2] / (full[1] * full[2]) for own, full in pairs]
        return Candidate(gmacs, sum(times) / len(times), sum(spaces) / len(spaces))


def usual_sites(costs: CostModel) -> Sites:
    """Give the sites to try: frames before block 0, and both where most blocks begin.

    That is the longest run of blocks on one grid: block 4 on MViT-B16, as in the paper, which
    found regions before block 0 to cost more accuracy than they save (section 4.3).
    """
    runs = [list(run) for _, run in groupby(enumerate(costs.grids()), key=lambda pair: pair[1])]
    body = max(runs, key=len)[0][0]
    return [*(("T", block) for block in sorted({0, body})), ("S", body)]


def list_plans(
    costs: CostModel, sites: Sites, *, first: Sequence[SelectionPlan] = ()
) -> list[SelectionPlan]:
    """List plans of at most one frame and one region site, none twice that keep the same.

    Those given as `first`, of any sites, stand for all that keep the same.
    """
    options: dict[str, list[Site | None]] = {"T": [None], "S": [None]}
    for kind, block in sites:
        options[kind] += [Site(kind, block, ratio) for ratio in RATIOS]
    plans = {tuple(costs.grids(plan)): plan for plan in reversed(first)}
    for chosen in product(options["T"], options["S"]):
        plan = SelectionPlan(tuple(site for site in chosen if site is not None))
        plans.setdefault(tuple(costs.grids(plan)), plan)
    return list(plans.values())


def drops(candidates: Sequence[Candidate]) -> Tensor:
    """Give (r, 2) features: the shares dropped in time and in space."""
    return torch.tensor([[1 - c.time_kept, 1 - c.space_kept] for c in candidates])


@dataclass(frozen=True)
class Results:
    """Top-1 accuracy in per cent by plan, and where it comes from."""

    source: str
    top1: Mapping[str, float]


_TABLES = Path(__file__).parents[1] / "assets" / "paper_results.json"
_RECORDED = json.loads(_TABLES.read_text(encoding="utf-8"))
PAPER = {model: Results(**results) for model, results in _RECORDED.items()}


def find_results(model: str, paths: Sequence[str | Path] = ()) -> Results | None:
    """Find results of a model in files of `tokenselect evaluate --output`, else the paper's."""
    if not paths:
        return PAPER.get(model)
    names = ", ".join(str(path) for path in paths)
    found = {
        str(SelectionPlan.of(record["plan"])): 100 * float(record["top1"])
        for path in paths
        for record in _records(Path(path))
        if record.get("model") == model
    }
    if not found:
        raise ValueError(f"no result of {model} in {names}")
    return Results(names, found)


def _records(path: Path) -> Iterator[Mapping[str, Any]]:
    """Read results from a file, one or a list of them, or from all files of a folder."""
    for file in sorted(path.glob("*.json")) if path.is_dir() else [path]:
        try:
            content = json.loads(file.read_text(encoding="utf-8"))
        except json.JSONDecodeError as error:
            raise ValueError(f"{file} is not valid JSON: {error}") from error
        for record in content if isinstance(content, list) else [content]:
            if isinstance(record, Mapping) and {"model", "plan", "top1"} <= record.keys():
                yield record


def fit_accuracy(features: Tensor, top1: Tensor) -> Tensor:
    """Fit (r,) top-1 by a line in (r, f) features, which are zeros for a dense model: (f + 1,).

    The first value is the accuracy of a dense model, the others the change by each feature. A weak
    pull to 0 keeps few results from running wild.
    """
    columns = torch.cat([torch.ones(len(features), 1), features], dim=1).double()
    pull = torch.diag(torch.tensor([0.0] + [1e-3] * features.shape[1], dtype=torch.float64))
    return torch.linalg.solve(columns.T @ columns + pull, columns.T @ top1.double()).float()


@dataclass(frozen=True)
class Proposal:
    """A plan that meets the budget."""

    plan: str  # its text
    gmacs: float  # of one view, scorers included
    kept: float  # share of the tokens, on average over the blocks
    milliseconds: Timing | None = None  # of one view; None where nothing was timed
    top1: float | None = None  # expected accuracy in per cent; None without results
    is_recorded: bool = False  # whether `top1` was measured for this very plan


@dataclass(frozen=True)
class Calibration:
    """What was found: the dense model to compare with, and the proposals, best first."""

    dense: Proposal
    proposals: list[Proposal]


def calibrate_model(
    model: nn.Module,
    *,
    target_ms: float | None = None,
    target_gmacs: float | None = None,
    results: Results | None = None,
    sites: Sites | None = None,
    count: int = 5,
    repeats: int = 3,
    tell: Callable[[str], object] = print,
) -> Calibration:
    """Find plans for a budget of milliseconds or of GMACs a view.

    Args:
        target_ms: at most so many milliseconds, measured here, on the model's device.
        sites: to try; None for the trained or the usual ones.
        repeats: timed forwards of each plan in turns; 0 times nothing.
    """
    if (target_ms is None) == (target_gmacs is None):
        raise ValueError("give one target: --target-ms or --target-gmacs")
    if (target_ms or target_gmacs or 0) <= 0:
        raise ValueError(f"the target must be above 0, got {target_ms or target_gmacs}")
    ranked = rank(list_candidates(model, results, sites=sites, tell=tell), results)
    timed: dict[str, Timing] = {}
    if target_gmacs is not None:
        cheapest = min(ranked.values(), key=lambda p: p.gmacs)
        check_met(target_gmacs, cheapest, cheapest.gmacs, unit="GMACs")
        proposals = [p for p in ranked.values() if p.gmacs <= target_gmacs]
        exact = (p for p in count_exactly(model, proposals) if p.gmacs <= target_gmacs)
        chosen = list(islice(exact, count))
        names = list(dict.fromkeys(["dense", *(p.plan for p in chosen)]))
        if repeats:
            tell(f"timing {len(names)} plans")
            timed = time_plans(model, names, repeats=repeats)
    else:
        assert target_ms is not None
        how = {"count": count, "repeats": max(1, repeats)}
        chosen, timed = meet_latency(model, ranked, target_ms, tell=tell, **how)
    found = [replace(p, milliseconds=timed.get(p.plan)) for p in (ranked["dense"], *chosen)]
    return Calibration(found[0], found[1:])


def list_candidates(
    model: nn.Module, results: Results | None, *, sites: Sites | None, tell: Callable[[str], object]
) -> dict[str, Candidate]:
    """Work out all plans to try: those with results, and those at the sites."""
    costs, trained = CostModel(with_plan(model, "dense")), info_of(model).trained
    recorded = [SelectionPlan.parse(text) for text in (results.top1 if results else ())]
    if trained:
        labels = sites_of(trained).split(", ")
        recorded = [plan for plan in recorded if {site.label for site in plan} <= set(labels)]
        sites = sites or [(label[0], int(label[1:])) for label in labels]
    plans = list_plans(costs, sites or usual_sites(costs), first=recorded)
    candidates = {}
    for number, plan in enumerate(plans):
        tell(f"counting multiply-adds of plan {number + 1} of {len(plans)}")
        candidates[str(plan)] = costs.candidate(plan)
    return candidates


def rank(candidates: Mapping[str, Candidate], results: Results | None) -> dict[str, Proposal]:
    """Order plans by expected accuracy; without results, by the tokens they keep."""
    recorded = {t: v for t, v in (results.top1 if results else {}).items() if t in candidates}
    line = None
    if len(recorded) >= FEWEST:
        known = [candidates[text] for text in recorded]
        line = fit_accuracy(drops(known), torch.tensor(list(recorded.values())))
    proposals = []
    for text, candidate in candidates.items():
        top1 = recorded.get(text)
        if top1 is None and line is not None:
            top1 = round(float(line[0] + drops([candidate])[0] @ line[1:]), 2)
        costs = (candidate.gmacs, candidate.kept)
        proposals.append(Proposal(text, *costs, top1=top1, is_recorded=text in recorded))
    proposals.sort(key=lambda p: (p.top1 if p.top1 is not None else -1.0, p.kept), reverse=True)
    return {proposal.plan: proposal for proposal in proposals}


def check_met(target: float, cheapest: Proposal, cost: float, *, unit: str) -> None:
    """Refuse a target that not even the cheapest plan meets."""
    if cost > target:
        raise ValueError(
            f"no plan meets {target:g} {unit}: the cheapest tried, {cheapest.plan}, takes "
            f"{cost:.3g} {unit}"
        )


def count_exactly(model: nn.Module, proposals: Iterable[Proposal]) -> Iterator[Proposal]:
    """Count the multiply-adds again with the scorers, one proposal after the other as asked for."""
    shape = info_of(model).clip_rule.shape
    for p in proposals:
        yield replace(p, gmacs=count_macs(with_plan(model, p.plan), *shape).gmacs)


def time_plans(model: nn.Module, plans: Sequence[str], *, repeats: int) -> dict[str, Timing]:
    """Time plans in turns on the model's device: milliseconds by plan."""
    clip = torch.randn(info_of(model).clip_rule.shape, device=next(model.parameters()).device)
    return time_forwards({plan: with_plan(model, plan) for plan in plans}, clip, repeats=repeats)


def meet_latency(
    model: nn.Module,
    ranked: Mapping[str, Proposal],
    target: float,
    *,
    count: int,
    repeats: int,
    tell: Callable[[str], object],
) -> tuple[list[Proposal], dict[str, Timing]]:
    """Guess latency from GMACs by a line through dense and cheapest, then measure the best."""
    cheapest = min(ranked.values(), key=lambda p: p.gmacs)
    tell("timing the dense model and the cheapest plan")
    timed = time_plans(model, ["dense", cheapest.plan], repeats=repeats)
    low, high = timed[cheapest.plan], timed["dense"]
    check_met(target, cheapest, low, unit="ms")
    span = max(ranked["dense"].gmacs - cheapest.gmacs, 1e-12)
    slope = max(high - low, 0.0) / span
    guess = {p.plan: low + slope * (p.gmacs - cheapest.gmacs) for p in ranked.values()}
    waiting = [p for p in ranked.values() if guess[p.plan] <= 1.05 * target and p.plan not in timed]
    met = [p for p in (ranked["dense"], cheapest) if timed[p.plan] <= target]
    for _ in range(MOST_ROUNDS):
        if not waiting or len(met) > count:
            break
        batch, waiting = waiting[:count], waiting[count:]
        tell(f"timing {len(batch)} plans, {len(met)} found so far")
        timed |= time_plans(model, [p.plan for p in batch], repeats=repeats)
        met += [p for p in batch if timed[p.plan] <= target]
    order = list(ranked)
    best = sorted(met, key=lambda p: order.index(p.plan))[:count]
    return list(count_exactly(model, best)), timed
