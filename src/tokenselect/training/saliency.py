"""What a dense model's answers depend on: frames and places, found by the gradient of its loss.

For each clip the gradient with respect to the tokens before a site, times (token − its average over
time), is summed over a frame or taken patch by patch; its absolute value, normalised, says how much
of the answer hangs there. Nobody has to say when or where something happens.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass, replace
from typing import Any, cast

import torch
import torch.nn.functional as F
from torch import Tensor, nn

from tokenselect.adapters import Adapter, Arguments, change_arguments
from tokenselect.grid import TokenGrid
from tokenselect.insertion import selectors_of
from tokenselect.insertion.grids import follow_grids
from tokenselect.insertion.insert import TokenSelectors
from tokenselect.plan import THW, Site
from tokenselect.selectors import Selector
from tokenselect.selectors.taught import TaughtScoring

FRAMES_OF_REGIONS = 2  # of a clip, whose patches are kept to learn from: all would fill the memory
Clips = Tensor | list[Tensor]  # a list for models that take several pathways
Batch = tuple[Clips, Tensor | None]


@dataclass(frozen=True)
class Shares:
    """What a site's scorer learns from: how much of the answers depends on each candidate.

    Attributes:
        features: (examples, l, width) of clips at a T site, of frames at an S site.
        targets: (examples, l) shares that sum to 1.
        hw: rows and columns of the grid.
    """

    features: Tensor
    targets: Tensor
    hw: tuple[int, int]

    @property
    def floor(self) -> float:
        """The smallest cross-entropy that the targets allow."""
        return float(-torch.special.xlogy(self.targets, self.targets).sum(dim=-1).mean())

    def loss(self, network: nn.Module, rows: Tensor) -> Tensor:
        """Give the cross-entropy of some examples, by the scores of a network."""
        scores = network(self.features[rows]).log_softmax(dim=-1)
        return -(self.targets[rows] * scores).sum(dim=-1).mean()


def find_shares(
    model: nn.Module, batches: Iterable[Batch], site: Site, *, uses_labels: bool
) -> Shares:
    """Ask a model what its answers depend on at a site that keeps everything yet."""
    features, targets = [], []
    hw = (1, 1)
    scoring = taught_scoring(model, site)
    generator = torch.Generator().manual_seed(0)
    for clips, labels in labelled(batches, model, uses_labels=uses_labels):
        with probed(model, site) as probe, torch.enable_grad():
            losses = losses_of(model, clips, labels)
        grid = probe.grid
        assert grid is not None
        hw = grid.thw[1:]
        (slope,) = torch.autograd.grad(losses.sum(), grid.tokens)
        share = saliency(grid, slope, kind=site.kind)
        with torch.no_grad():
            if site.kind == "T":
                seen = scoring.frame_features(grid)
            else:
                seen, share = _some_frames(scoring.patch_features(grid), share, generator)
        features.append(seen.detach().float())
        targets.append(share.float())
    if not features:
        raise ValueError("clips must hold at least one batch to learn from, got none")
    return Shares(torch.cat(features), torch.cat(targets), hw)


def saliency(grid: TokenGrid, slope: Tensor, *, kind: str) -> Tensor:
    """Turn the loss's gradient into shares of each frame, or of each patch of a frame.

    Args:
        grid: what the gradient was taken at.
        slope: (b, p + t·h·w, c) gradient with respect to its tokens.
        kind: "T" or "S".

    Returns:
        (b, t), or (b, t, n), that sum to 1.
    """
    patches = grid.patches.detach()
    change = grid.with_tokens(slope).patches * (patches - patches.mean(dim=1, keepdim=True))
    found = change.sum(dim=(2, 3, 4)) if kind == "T" else change.sum(dim=4).flatten(2)
    return _shares(found.abs())


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


class Probe:
    """Changes the arguments of a block: its tokens become a leaf that gradients end at.

    Args:
        adapter: reads and writes the block's arguments.
        thw: the grid there, by the plan.
    """

    def __init__(self, adapter: Adapter, thw: THW | None) -> None:
        self.adapter = adapter
        self.thw = thw
        self.grid: TokenGrid | None = None

    def __call__(self, arguments: Arguments) -> Arguments:
        """Remember the grid and pass it on."""
        grid = self.adapter.read(arguments, self.thw)
        self.grid = replace(grid, tokens=grid.tokens.detach().requires_grad_())
        return self.adapter.write(self.grid, arguments)


@contextmanager
def probed(model: nn.Module, site: Site) -> Iterator[Probe]:
    """Catch the grid before a site's block, behind the selectors that run there already."""
    selectors = taught_selectors(model)
    grids = follow_grids(selectors.adapter, model, selectors.plan)
    probe = Probe(selectors.adapter, grids[site.block].kept if grids else None)
    handle = change_arguments(selectors.adapter.blocks(model)[site.block], probe)
    try:
        yield probe
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


def _some_frames(
    features: Tensor, shares: Tensor, generator: torch.Generator
) -> tuple[Tensor, Tensor]:
    """Draw some frames of each clip: (b, t, …) to (b·k, …)."""
    t = features.shape[1]
    chosen = torch.randperm(t, generator=generator)[:FRAMES_OF_REGIONS].to(features.device)
    return features[:, chosen].flatten(0, 1), shares[:, chosen].flatten(0, 1)


def _shares(found: Tensor) -> Tensor:
    """Make the last dimension sum to 1; where nothing was found all are equal."""
    found = found + 1e-12
    return found / found.sum(dim=-1, keepdim=True)
