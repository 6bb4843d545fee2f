"""What a dense model loses with each of many choices of frames or regions, drawn at random.

Unlike the gradient of the dense model's loss, this tells what a frame is worth where only few are
kept. Scores are learnt from it directly: a choice is as likely as the sum of its scores says, and
the expected loss falls.
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass
from itertools import combinations
from math import comb
from typing import cast

import torch
from torch import Tensor, nn

from tokenselect.insertion import set_plan
from tokenselect.measure.headroom import Choice, Chosen
from tokenselect.ops.anchors import Pair, anchor_corners, average_anchors, default_stride
from tokenselect.plan import THW, SelectionPlan, Site
from tokenselect.selectors import Selector
from tokenselect.training.saliency import (
    FRAMES_OF_REGIONS,
    Batch,
    Clips,
    labelled,
    losses_of,
    own_scoring_kept,
    probed,
    taught_scoring,
    taught_selectors,
)

CHOICES = 16  # tried with each clip


@dataclass(frozen=True)
class Tries:
    """What a site's scorer learns from: choices and their losses.

    Attributes:
        features: (clips, t, width), or of some frames' patches (clips, f, n, width) at an S site.
        members: (clips, choices, l), 1 where a choice keeps a candidate: a frame or an anchor.
        losses: (clips, choices) of the model.
        hw: rows and columns of the grid.
        anchors: rows and columns of a region, and of the steps between regions; None at a T site.
    """

    features: Tensor
    members: Tensor
    losses: Tensor
    hw: Pair
    anchors: tuple[Pair, Pair] | None = None

    @property
    def floor(self) -> float:
        """The loss if every clip had the best choice that was tried."""
        return float(self.losses.amin(dim=1).mean())

    def loss(self, network: nn.Module, rows: Tensor) -> Tensor:
        """Give the expected loss of some clips, by the scores of a network."""
        scores = network(self.features[rows])
        if self.anchors is not None:
            maps = scores.unflatten(2, self.hw)
            scores = average_anchors(maps, *self.anchors).mean(dim=1)  # (b, g)
        sums = (self.members[rows] * scores[:, None]).sum(dim=2)  # (b, choices)
        return (sums.softmax(dim=1) * self.losses[rows]).sum(dim=1).mean()


@torch.no_grad()
def try_choices(
    model: nn.Module, batches: Iterable[Batch], site: Site, *, uses_labels: bool, seed: int
) -> Tries:
    """Answer clips with choices drawn anew for each batch.

    Args:
        model: with a plan in which `site` keeps everything.
        batches: as `teach_selectors` takes them.
        site: what it shall keep.
        uses_labels: losses are those of the labels; else of the model's own answers.
        seed: of the draws.
    """
    generator = torch.Generator().manual_seed(seed)
    scoring, selectors = taught_scoring(model, site), taught_selectors(model)
    stride = getattr(selectors[site.label], "stride", None)
    features, members, losses = [], [], []
    thw: THW = (1, 1, 1)
    for clips, labels in labelled(batches, model, uses_labels=uses_labels):
        with probed(model, site) as probe:
            model(clips)
        assert probe.grid is not None
        thw = probe.grid.thw
        tried = draw_choices(site, thw, stride, generator)
        if site.kind == "T":
            seen = scoring.frame_features(probe.grid)
        else:
            frames = torch.randperm(thw[0], generator=generator)[:FRAMES_OF_REGIONS]
            seen = scoring.patch_features(probe.grid)[:, frames]
        features.append(seen.float())
        losses.append(losses_with(model, clips, labels, site, tried))
        kept = mark(tried, site, thw, stride).to(seen.device)
        members.append(kept.expand(len(labels), -1, -1))
    if not features:
        raise ValueError("clips must hold at least one batch to learn from, got none")
    hw, anchors = thw[1:], None
    if site.kind == "S":
        side = site.region_side(*hw)
        anchors = (side, stride or default_stride(hw, side))
    return Tries(torch.cat(features), torch.cat(members), torch.cat(losses), hw, anchors)


def losses_with(
    model: nn.Module, clips: Clips, labels: Tensor, site: Site, tried: list[Choice]
) -> Tensor:
    """Give each clip's loss with each choice: (b, choices)."""
    selectors = taught_selectors(model)
    plan = selectors.plan
    others = tuple(other for other in plan if other.label != site.label)
    selector = cast(Selector, selectors[site.label])
    set_plan(model, SelectionPlan((*others, site)))
    found = []
    with own_scoring_kept(selector):
        for choice in tried:
            selector.scoring = Chosen(choice)
            found.append(losses_of(model, clips, labels))
    set_plan(model, plan)
    return torch.stack(found, dim=1)


def draw_choices(
    site: Site, thw: THW, stride: Pair | None, generator: torch.Generator
) -> list[Choice]:
    """Draw sets of frames, or anchors, none twice; all of them where there are few."""
    if site.kind == "S":
        count = count_candidates(site, thw, stride)
        anchors = torch.randperm(count, generator=generator)[:CHOICES].tolist()
        return [(anchor,) for anchor in anchors]
    t, keep = thw[0], site.frames_kept(thw[0])
    if comb(t, keep) <= CHOICES:
        return list(combinations(range(t), keep))
    drawn: dict[Choice, None] = {}
    while len(drawn) < CHOICES:
        frames = torch.randperm(t, generator=generator)[:keep].sort().values
        drawn.setdefault(tuple(frames.tolist()))
    return list(drawn)


def mark(tried: list[Choice], site: Site, thw: THW, stride: Pair | None) -> Tensor:
    """Mark the candidates that each choice keeps: (choices, l)."""
    marked = torch.zeros(len(tried), count_candidates(site, thw, stride))
    for row, choice in zip(marked, tried, strict=True):
        row[list(choice)] = 1
    return marked


def count_candidates(site: Site, thw: THW, stride: Pair | None) -> int:
    """Count the frames, or the anchors of a frame."""
    if site.kind == "T":
        return thw[0]
    hw = thw[1:]
    side = site.region_side(*hw)
    return len(anchor_corners(hw, side, stride or default_stride(hw, side)))
