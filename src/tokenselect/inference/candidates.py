"""Plans worth proposing for a model, and what they cost, without running any of them."""

import math
from collections.abc import Sequence
from dataclasses import dataclass
from functools import cached_property
from itertools import groupby, product
from typing import Any, cast

import torch
from torch import Tensor, nn

from tokenselect.grid import TokenGrid
from tokenselect.insertion import adapter_of
from tokenselect.measure.cost import count_macs
from tokenselect.plan import THW, SelectionPlan, Site

RATIOS = (0.9, 0.8, 0.7, 0.6, 0.5, 0.4, 0.3)


@dataclass(frozen=True)
class Candidate:
    """A plan with what follows from it on paper."""

    plan: SelectionPlan  # the plan
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
        return Candidate(plan, gmacs, sum(times) / len(times), sum(spaces) / len(spaces))


def usual_sites(costs: CostModel) -> list[tuple[str, int]]:
    """Give the sites to try: frames before block 0, and both where most blocks begin.

    That is the longest run of blocks on one grid: block 4 on MViT-B16, as in the paper, which
    found regions before block 0 to cost more accuracy than they save (section 4.3).
    """
    runs = [list(run) for _, run in groupby(enumerate(costs.grids()), key=lambda pair: pair[1])]
    body = max(runs, key=len)[0][0]
    return [*(("T", block) for block in sorted({0, body})), ("S", body)]


def list_plans(
    costs: CostModel,
    sites: Sequence[tuple[str, int]],
    *,
    first: Sequence[SelectionPlan] = (),
    ratios: Sequence[float] = RATIOS,
) -> list[SelectionPlan]:
    """List plans of at most one frame and one region site, none twice that keep the same.

    Args:
        costs: of the model.
        sites: kind and block.
        first: plans of any sites that stand for all that keep the same.
        ratios: to try at each site, from the largest.
    """
    options: dict[str, list[Site | None]] = {"T": [None], "S": [None]}
    for kind, block in sites:
        options[kind] += [Site(kind, block, ratio) for ratio in ratios]
    plans = {tuple(costs.grids(plan)): plan for plan in reversed(first)}
    for chosen in product(options["T"], options["S"]):
        plan = SelectionPlan(tuple(site for site in chosen if site is not None))
        plans.setdefault(tuple(costs.grids(plan)), plan)
    return list(plans.values())


def drops(candidates: Sequence[Candidate]) -> Tensor:
    """Give (r, 2) features: the shares dropped in time and in space."""
    return torch.tensor([[1 - c.time_kept, 1 - c.space_kept] for c in candidates])
