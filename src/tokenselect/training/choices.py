"""What a dense model loses with each of many choices of frames or regions.

Scores are learnt from it directly: a choice is as likely as the sum of its scores says, less what
its frames repeat of each other, and the expected loss falls. The first choices are drawn at random,
further ones where a scorer that learnt from those would look.
"""

from collections.abc import Iterable, Iterator
from dataclasses import dataclass, replace
from math import prod
from typing import Any, cast

import torch
import torch.nn.functional as F
from torch import Tensor, nn

from tokenselect.adapters import Arguments, change_arguments
from tokenselect.grid import TokenGrid
from tokenselect.insertion import selectors_of, set_plan
from tokenselect.insertion.hooks import follow_grids
from tokenselect.insertion.insert import TokenSelectors
from tokenselect.measure.headroom import Chosen
from tokenselect.ops.anchors import Pair, anchor_corners, average_anchors, default_stride
from tokenselect.plan import SelectionPlan, Site
from tokenselect.selectors import Selector
from tokenselect.selectors.taught import GAPS, FrameNetwork, TaughtScoring

FRAMES_OF_REGIONS = 2  # of a clip, whose patches are kept to learn from: all would fill the memory
MANY_PATCHES = 1024  # of a frame: of more, one frame is kept
Clips = Tensor | list[Tensor]  # a list for models that take several pathways
Shown = tuple[Clips, Tensor | None]  # a batch to learn from, and its labels if it has some
CHOICES, MOST = 8, 8000  # drawn for each clip at a time, and of all clips: there may be fewer each
TEMPERATURE = 0.5  # of the draws by scores, in units of their deviation


@dataclass(frozen=True)
class Tries:
    """What a site's scorer learns from: choices and their losses."""

    features: Tensor  # (clips, t, width), or of some frames' patches (clips, f, h, w, width) at S
    labels: Tensor  # (clips,) that losses are measured by
    keep: int  # candidates that a choice keeps: frames, or one anchor
    members: Tensor  # (clips, choices, l), 1 where a choice keeps a candidate
    losses: Tensor  # (clips, choices) of the model
    anchors: tuple[Pair, Pair] | None = None  # side of a region, and stride; at S only

    def score(self, network: nn.Module, rows: Tensor, *, dropout: float = 0.0) -> Tensor:
        """Give a network's scores of some clips' candidates: (b, l)."""
        scores = network(F.dropout(self.features[rows], dropout))
        return average_anchors(scores, *self.anchors).mean(dim=1) if self.anchors else scores

    def loss(self, network: nn.Module, rows: Tensor, *, dropout: float = 0.0) -> Tensor:
        """Give the expected loss of some clips, by the scores of a network."""
        members = self.members[rows]
        scores = self.score(network, rows, dropout=dropout)[:, None]
        worths = (members * scores).sum(dim=2)  # (b, choices)
        if isinstance(network, FrameNetwork):
            worths = worths - count_pairs(members, GAPS) @ network.repetition
        return (worths.softmax(dim=1) * self.losses[rows]).sum(dim=1).mean()


def count_pairs(members: Tensor, gaps: int) -> Tensor:
    """Count the pairs of frames that (..., t) choices keep 1, 2, … apart: (..., gaps)."""
    padded = F.pad(members, (0, gaps))
    t = members.shape[-1]
    shifted = [(members * padded[..., gap : gap + t]).sum(dim=-1) for gap in range(1, gaps + 1)]
    return torch.stack(shifted, dim=-1)


@torch.no_grad()
def watch_clips(
    model: nn.Module, batches: Iterable[Shown], site: Site, *, uses_labels: bool, seed: int
) -> Tries:
    """Keep what a site's scorer sees of clips, no choice tried yet; the plan keeps all there."""
    generator = torch.Generator().manual_seed(seed)
    scoring = taught_scoring(model, site)
    features, known = list[Tensor](), list[Tensor]()
    for clips, labels in labelled(batches, model, uses_labels=uses_labels):
        if not features:
            losses_of(model, clips, labels)  # refuses what cannot teach
        grid = grid_before(model, site, clips)
        if site.kind == "T":
            seen = scoring.frame_features(grid)
        else:
            few = 1 if prod(grid.thw[1:]) > MANY_PATCHES else FRAMES_OF_REGIONS
            frames = torch.randperm(grid.thw[0], generator=generator)[:few]
            seen = scoring.patch_features(grid)[:, frames]
        features.append(seen.float())
        known.append(labels)
    if not features:
        raise ValueError("clips must hold at least one batch to learn from, got none")
    keep, count, anchors = 1, grid.thw[0], None
    if site.kind == "T":
        keep = site.frames_kept(count)
    else:
        selector, hw = cast(Selector, taught_selectors(model)[site.label]), grid.thw[1:]
        side = site.region_side(*hw)
        anchors = (side, selector.stride or default_stride(hw, side, selector.parts))
        count = len(anchor_corners(hw, *anchors))
    labels = torch.cat(known)
    nothing = features[0].new_zeros(len(labels), 0, count)
    return Tries(torch.cat(features), labels, keep, nothing, nothing.sum(dim=2), anchors)


@torch.no_grad()
def try_choices(
    model: nn.Module, shown: Iterable[Shown], site: Site, known: Tries, *, scores: Tensor, seed: int
) -> Tries:
    """Answer the clips that `known` is about with more choices, drawn by (clips, l) scores."""
    generator = torch.Generator().manual_seed(seed)
    count = min(CHOICES, -(-MOST // len(scores)))
    drawn = draw_choices(scores, known.keep, count, generator)  # (clips, choices, k)
    marks = torch.zeros_like(scores)[:, None].repeat(1, count, 1).scatter(2, drawn, 1.0)
    selectors = taught_selectors(model)
    plan, selector = selectors.plan, cast(Selector, selectors[site.label])
    set_plan(model, SelectionPlan((*plan.sites[:-1], site)))
    own, first, found = selector.scoring, 0, list[Tensor]()
    # what lies before the site runs once for all choices of a clip
    repeating = selector.register_forward_pre_hook(lambda _, args: (args[0].repeated(count),))
    try:
        for clips, _ in shown:
            clips = moved_to(clips, marks.device)
            rows = slice(first, first + len(clips[0] if isinstance(clips, list) else clips))
            selector.scoring = Chosen(drawn[rows].flatten(0, 1))
            labels = known.labels[rows].repeat_interleave(count)
            found.append(losses_of(model, clips, labels).unflatten(0, (-1, count)))
            first = rows.stop
    finally:
        selector.scoring = own
        repeating.remove()
    set_plan(model, plan)
    all_losses = torch.cat([known.losses, torch.cat(found)], dim=1)
    return replace(known, members=torch.cat([known.members, marks], dim=1), losses=all_losses)


def draw_choices(scores: Tensor, keep: int, count: int, generator: torch.Generator) -> Tensor:
    """Draw sets of `keep` candidates, likelier where (b, l) scores are high: (b, count, keep)."""
    chances = (scores / TEMPERATURE).softmax(dim=1).cpu().repeat_interleave(count, dim=0)
    drawn = chances.clamp_min(1e-6).multinomial(keep, generator=generator)
    return drawn.unflatten(0, (-1, count)).to(scores.device)


def grid_before(model: nn.Module, site: Site, clips: Clips) -> TokenGrid:
    """Give the grid before a site's block, behind the selectors that run there already."""
    selectors = taught_selectors(model)
    grids = follow_grids(selectors.adapter, model, selectors.plan)
    thw = grids[site.block].kept if grids else None

    def stop(arguments: Arguments) -> Arguments:
        raise _Reached(selectors.adapter.read(arguments, thw))

    with change_arguments(selectors.adapter.blocks(model)[site.block], stop):
        try:
            model(clips)
        except _Reached as reached:
            return cast(TokenGrid, reached.args[0])
    raise ValueError(f"the model did not come to block {site.block} of {site}")


class _Reached(Exception):
    """A forward pass has come to the block in question, with this grid, and ends there."""


def losses_of(model: nn.Module, clips: Clips, labels: Tensor) -> Tensor:
    """Give the chance that each clip's answer is wrong: (b,).

    Cross-entropy would count most the few clips that a dense model, which is not used to parts of
    clips, gets wrong with great confidence, whatever is kept of them.
    """
    logits = logits_of(model(clips)).float()
    if len(logits) != len(labels):
        raise ValueError(
            f"model must give one answer per clip, got {len(logits)} for {len(labels)} clips: "
            "a model that encodes frames one by one cannot teach"
        )
    return 1 - logits.softmax(dim=1).gather(1, labels[:, None]).squeeze(1)


def logits_of(output: Any) -> Tensor:
    """Give the logits of a model of ours or of another library."""
    logits = output if isinstance(output, Tensor) else getattr(output, "logits", None)
    if logits is None:
        raise ValueError(
            "only a model that classifies videos can teach, and this one gives "
            f"{type(output).__name__} without logits"
        )
    return logits


def moved_to(clips: Clips, device: torch.device) -> Clips:
    """Move clips of one pathway or of several."""
    return clips.to(device) if isinstance(clips, Tensor) else [part.to(device) for part in clips]


def labelled(
    batches: Iterable[Shown], model: nn.Module, *, uses_labels: bool
) -> Iterator[tuple[Clips, Tensor]]:
    """Go through batches on the model's device, labelled as they are or by the model itself."""
    device = next(model.parameters()).device
    for clips, labels in batches:
        moved = moved_to(clips, device)
        if not uses_labels:
            labels = logits_of(model(moved)).argmax(dim=1)
        if labels is None:
            raise ValueError("labels must be given if uses_labels is True, got None")
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
