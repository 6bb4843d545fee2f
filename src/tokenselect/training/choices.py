"""What a dense model loses with each of many choices of frames or regions, drawn at random.

Unlike the gradient of the dense model's loss, this tells what a frame is worth where only few are
kept. Scores are learnt from it directly: a choice is as likely as the sum of its scores says, and
the expected loss falls.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from itertools import combinations
from math import comb
from typing import Any, cast

import torch
import torch.nn.functional as F
from torch import Tensor, nn

from tokenselect.adapters import Arguments, change_arguments
from tokenselect.grid import TokenGrid
from tokenselect.insertion import selectors_of, set_plan
from tokenselect.insertion.hooks import follow_grids
from tokenselect.insertion.insert import TokenSelectors
from tokenselect.measure.headroom import Choice, Chosen
from tokenselect.ops.anchors import Pair, anchor_corners, average_anchors, default_stride
from tokenselect.plan import THW, SelectionPlan, Site
from tokenselect.selectors import Selector
from tokenselect.selectors.taught import TaughtScoring

FRAMES_OF_REGIONS = 2  # of a clip, whose patches are kept to learn from: all would fill the memory
Clips = Tensor | list[Tensor]  # a list for models that take several pathways
Batch = tuple[Clips, Tensor | None]
CHOICES = 16  # tried with each clip


@dataclass(frozen=True)
class Tries:
    """What a site's scorer learns from: choices and their losses."""

    features: Tensor  # (clips, t, width), or of some frames' patches (clips, f, n, width) at S
    members: Tensor  # (clips, choices, l), 1 where a choice keeps a candidate: a frame, an anchor
    losses: Tensor  # (clips, choices) of the model
    hw: Pair  # rows and columns of the grid
    anchors: tuple[Pair, Pair] | None = None  # sides of a region, and of the steps between them

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
    """Answer clips with choices drawn anew for each batch; the model's plan keeps all at `site`."""
    generator = torch.Generator().manual_seed(seed)
    scoring, selectors = taught_scoring(model, site), taught_selectors(model)
    stride = getattr(selectors[site.label], "stride", None)
    features, members, losses = [], [], []
    thw: THW = (1, 1, 1)
    for clips, labels in labelled(batches, model, uses_labels=uses_labels):
        with probed(model, site) as caught:
            model(clips)
        (grid,) = caught
        thw = grid.thw
        tried = draw_choices(site, thw, stride, generator)
        if site.kind == "T":
            seen = scoring.frame_features(grid)
        else:
            frames = torch.randperm(thw[0], generator=generator)[:FRAMES_OF_REGIONS]
            seen = scoring.patch_features(grid)[:, frames]
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


@contextmanager
def frozen(model: nn.Module) -> Iterator[None]:
    """Let no parameter of a model take part in gradients for a while."""
    learning = [parameter for parameter in model.parameters() if parameter.requires_grad]
    for parameter in learning:
        parameter.requires_grad_(False)
    try:
        yield
    finally:
        for parameter in learning:
            parameter.requires_grad_(True)


@contextmanager
def own_scoring_kept(selector: Selector) -> Iterator[None]:
    """Give a selector its own scoring back at the end."""
    scoring = selector.scoring
    try:
        yield
    finally:
        selector.scoring = scoring


@contextmanager
def probed(model: nn.Module, site: Site) -> Iterator[list[TokenGrid]]:
    """Catch the grid before a site's block, behind the selectors that run there already."""
    selectors = taught_selectors(model)
    grids = follow_grids(selectors.adapter, model, selectors.plan)
    thw = grids[site.block].kept if grids else None
    caught: list[TokenGrid] = []

    def catch(arguments: Arguments) -> Arguments:
        caught.append(selectors.adapter.read(arguments, thw))
        return arguments

    handle = change_arguments(selectors.adapter.blocks(model)[site.block], catch)
    try:
        yield caught
    finally:
        handle.remove()


def losses_of(model: nn.Module, clips: Clips, labels: Tensor) -> Tensor:
    """Give each clip's cross-entropy: (b,)."""
    logits = logits_of(model(clips)).float()
    if len(logits) != len(labels):
        raise ValueError(
            f"model must give one answer per clip, got {len(logits)} for {len(labels)} clips: "
            "one that encodes frames on their own has nothing to teach"
        )
    return F.cross_entropy(logits, labels, reduction="none")


def logits_of(output: Any) -> Tensor:
    """Give the logits of a model of ours or of another library."""
    logits = output if isinstance(output, Tensor) else getattr(output, "logits", None)
    if logits is None:
        raise ValueError(
            "only a model that classifies videos can teach, and this one gives "
            f"{type(output).__name__} without logits"
        )
    return logits


def labelled(
    batches: Iterable[Batch], model: nn.Module, *, uses_labels: bool
) -> Iterator[tuple[Clips, Tensor]]:
    """Go through batches on the model's device, labelled as they are or by the model itself."""
    device = next(model.parameters()).device
    for clips, labels in batches:
        moved = clips.to(device) if isinstance(clips, Tensor) else [c.to(device) for c in clips]
        if not uses_labels:
            with torch.no_grad():
                labels = logits_of(model(moved)).argmax(dim=1)
        if labels is None:
            raise ValueError("labels must be given where uses_labels is True, got None")
        yield moved, labels.to(device)


def taught_selectors(model: nn.Module) -> TokenSelectors:
    """Give the selectors of a model that has some."""
    selectors = selectors_of(model)
    assert selectors is not None
    return selectors


def taught_scoring(model: nn.Module, site: Site) -> TaughtScoring:
    """Give a site's scoring, which must be one that can be taught."""
    scoring = cast(Selector, taught_selectors(model)[site.label]).scoring
    if not isinstance(scoring, TaughtScoring):
        raise ValueError(
            f"selectors must have the scorer 'taught', got {type(scoring).__name__} at {site}"
        )
    return scoring
