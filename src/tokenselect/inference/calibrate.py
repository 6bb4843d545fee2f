"""Recorded accuracies, and what they lead one to expect of plans that nobody has trained yet."""

import json
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from itertools import islice
from pathlib import Path
from typing import Any

import torch
from torch import Tensor, nn

from tokenselect.checkpoints.model import info_of, sites_of, with_plan
from tokenselect.inference.candidates import Candidate, CostModel, drops, list_plans, usual_sites
from tokenselect.measure.cost import Timing, count_macs, time_forwards
from tokenselect.plan import SelectionPlan

FEWEST = 3  # results from which others are estimated


@dataclass(frozen=True)
class Results:
    """Top-1 accuracy in per cent by plan, and where it comes from."""

    source: str
    top1: Mapping[str, float]


# Tables 1, 2, 4 and 5 of the paper for MViT-B16, Tables 2 and 3 for Video Swin-B.
_MVIT_B16 = {
    "dense": 78.4, "T0_0.9-S4_0.9": 78.1, "T0_0.8-S4_0.9": 77.9, "T0_0.6-S4_0.9": 77.5,
    "T0_0.6": 77.5, "T0_0.5": 77.3, "T4_0.3": 77.3, "S0_0.6": 76.2, "S0_0.5": 76.2, "S4_0.3": 76.8,
    "T0_0.8-S0_0.7": 76.4, "T0_0.9-S0_0.9-T4_0.7-S4_0.7": 76.4, "T4_0.6-S4_0.7-T8_0.4-S8_0.7": 76.5,
    "T0_0.9-S0_0.9-T4_0.9-S4_0.9-T8_0.7-S8_0.8": 76.6,
}  # fmt: skip
_SWIN_B = {"dense": 82.7, "T0_0.8": 81.9, "T0_0.6": 81.4}
_SWIN_B_W16 = {"dense": 69.6, "T0_0.7": 68.7, "T0_0.6": 68.1}
PAPER = {
    "mvit_b16": Results("the paper, Kinetics-400", _MVIT_B16),
    "video_swin_b": Results("the paper, Kinetics-400", _SWIN_B),
    "video_swin_b_w16": Results("the paper, Something-Something V2", _SWIN_B_W16),
}


def find_results(model: str, paths: Sequence[str | Path] = ()) -> Results | None:
    """Find recorded results of a model: in files if any are given, else the paper's.

    Args:
        model: its name.
        paths: JSON files of `tokenselect evaluate --output`, or folders of them.
    """
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
    files = sorted(path.glob("*.json")) if path.is_dir() else [path]
    for file in files:
        try:
            content = json.loads(file.read_text(encoding="utf-8"))
        except json.JSONDecodeError as error:
            raise ValueError(f"{file} is not valid JSON: {error}") from error
        for record in content if isinstance(content, list) else [content]:
            if isinstance(record, Mapping) and {"model", "plan", "top1"} <= record.keys():
                yield record


def fit_accuracy(features: Tensor, top1: Tensor) -> Tensor:
    """Fit top-1 by a line in features; a weak pull to 0 keeps few results from running wild.

    Args:
        features: (r, f), zeros for a dense model.
        top1: (r,) per cent.

    Returns:
        (f + 1,) the accuracy of a dense model, then the change by each feature.
    """
    columns = torch.cat([torch.ones(len(features), 1), features], dim=1).double()
    pull = torch.diag(torch.tensor([0.0] + [1e-3] * features.shape[1], dtype=torch.float64))
    return torch.linalg.solve(columns.T @ columns + pull, columns.T @ top1.double()).float()


MOST_ROUNDS = 4  # of timing before giving up on finding more


@dataclass(frozen=True)
class Proposal:
    """A plan that meets the budget."""

    plan: str  # its text
    gmacs: float  # of one view, scorers included
    kept: float  # share of the tokens, on average over the blocks
    milliseconds: Timing | None = None  # of one view; None where nothing was timed
    # expected accuracy in per cent; None where there are no results to expect it from
    top1: float | None = None
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
    sites: Sequence[tuple[str, int]] | None = None,
    count: int = 5,
    repeats: int = 3,
    tell: Callable[[str], object] = print,
) -> Calibration:
    """Find plans for a budget of milliseconds or of GMACs a view.

    Args:
        model: on the device it will run on.
        target_ms: at most so many milliseconds, measured here.
        target_gmacs: at most so many GMACs.
        results: recorded accuracies of the model.
        sites: kind and block of the sites to try; None for the trained or the usual ones.
        count: proposals to find.
        repeats: timed forwards of each plan in turns; 0 times nothing.
        tell: told what is being done.
    """
    if (target_ms is None) == (target_gmacs is None):
        raise ValueError("give one target: --target-ms or --target-gmacs")
    if (target_ms or target_gmacs or 0) <= 0:
        raise ValueError(f"the target must be above 0, got {target_ms or target_gmacs}")
    candidates = list_candidates(model, results, sites=sites, tell=tell)
    ranked = rank(candidates, results)
    if target_gmacs is not None:
        proposals = [p for p in ranked.values() if p.gmacs <= target_gmacs]
        check_found(proposals, ranked, f"{target_gmacs:g} GMACs", lambda p: p.gmacs, "GMACs")
        exact = (p for p in count_exactly(model, proposals) if p.gmacs <= target_gmacs)
        chosen, dense = list(islice(exact, count)), ranked["dense"]
        names = list(dict.fromkeys(["dense", *(p.plan for p in chosen)]))
        timed: dict[str, Timing] = {}
        if repeats:
            tell(f"timing {len(names)} plans")
            timed = time_plans(model, names, repeats=repeats)
        return _calibration(dense, chosen, timed)
    assert target_ms is not None
    return meet_latency(model, ranked, target_ms, count=count, repeats=max(1, repeats), tell=tell)


def list_candidates(
    model: nn.Module,
    results: Results | None,
    *,
    sites: Sequence[tuple[str, int]] | None,
    tell: Callable[[str], object],
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
        proposal = Proposal(text, candidate.gmacs, candidate.kept)
        if text in recorded:
            proposal = replace(proposal, top1=recorded[text], is_recorded=True)
        elif line is not None:
            expected = line[0] + drops([candidate])[0] @ line[1:]
            proposal = replace(proposal, top1=round(float(expected), 2))
        proposals.append(proposal)
    proposals.sort(key=lambda p: (p.top1 if p.top1 is not None else -1.0, p.kept), reverse=True)
    return {proposal.plan: proposal for proposal in proposals}


def check_found(
    found: Sequence[Proposal],
    ranked: Mapping[str, Proposal],
    target: str,
    cost: Callable[[Proposal], float],
    unit: str,
) -> None:
    """Say which plan comes nearest if none meets the target."""
    if not found:
        cheapest = min(ranked.values(), key=lambda p: p.gmacs)
        raise ValueError(
            f"no plan meets {target}: the cheapest tried, {cheapest.plan}, takes "
            f"{cost(cheapest):.3g} {unit}"
        )


def count_exactly(model: nn.Module, proposals: Iterable[Proposal]) -> Iterator[Proposal]:
    """Count the multiply-adds again with the scorers, one proposal after the other as asked for."""
    shape = info_of(model).clip_rule.shape
    for p in proposals:
        yield replace(p, gmacs=count_macs(with_plan(model, p.plan), *shape).gmacs)


def _calibration(
    dense: Proposal, found: Iterable[Proposal], timed: Mapping[str, Timing]
) -> Calibration:
    first, *others = (replace(p, milliseconds=timed.get(p.plan)) for p in (dense, *found))
    return Calibration(first, others)


def time_plans(model: nn.Module, plans: Sequence[str], *, repeats: int) -> dict[str, Timing]:
    """Time plans in turns on the model's device: milliseconds by plan."""
    device = next(model.parameters()).device
    clip = torch.randn(info_of(model).clip_rule.shape, device=device)
    models = {plan: with_plan(model, plan) for plan in plans}
    return time_forwards(models, clip, repeats=repeats)


def meet_latency(
    model: nn.Module,
    ranked: Mapping[str, Proposal],
    target: float,
    *,
    count: int,
    repeats: int,
    tell: Callable[[str], object],
) -> Calibration:
    """Guess latency from GMACs by a line through dense and cheapest, then measure the best."""
    cheapest = min(ranked.values(), key=lambda p: p.gmacs)
    tell("timing the dense model and the cheapest plan")
    timed = time_plans(model, ["dense", cheapest.plan], repeats=repeats)
    low, high = timed[cheapest.plan], timed["dense"]
    check_found([cheapest] if low <= target else [], ranked, f"{target:g} ms", lambda _: low, "ms")
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
    return _calibration(ranked["dense"], count_exactly(model, best), timed)
