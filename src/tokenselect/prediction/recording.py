"""One clip through a model, with everything that was selected on the way."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import AbstractContextManager, contextmanager, nullcontext
from dataclasses import dataclass
from typing import cast

import torch
from torch import Tensor, nn

from tokenselect.adapters import find_adapter
from tokenselect.grid import TokenGrid
from tokenselect.insertion import record_selections, watch_grids
from tokenselect.insertion.insert import selectors_of
from tokenselect.ops.anchors import Pair, corners_of, default_stride
from tokenselect.plan import THW
from tokenselect.selectors import RegionSelector, Selection, Selector
from tokenselect.selectors.baselines import RandomScoring
from tokenselect.selectors.scoring import AnchorFeatureScoring

PROBE = 960  # a side that every stride divides


@dataclass(frozen=True)
class Recording:
    """What happened in one forward of one clip.

    Attributes:
        logits: (classes,).
        thw: the grid that the embedding made.
        grids: the grid that entered each block, after the selection before it.
        selections: by site, batch of one.
        maps: by region site, the (t, h, w) scores of the patches.
    """

    logits: Tensor
    thw: THW
    grids: list[THW]
    selections: dict[str, Selection]
    maps: dict[str, Tensor]


@torch.inference_mode()
def record_clip(model: nn.Module, clip: Tensor) -> Recording:
    """Run one clip (1, 3, t, h, w) and note all that was selected."""
    nothing: AbstractContextManager[dict[str, Selection]] = nullcontext({})
    recorder = nothing if selectors_of(model) is None else record_selections(model)
    maps: dict[str, Tensor] = {}
    with watch_grids(model) as grids, watch_maps(model, maps), recorder as selections:
        logits = model(clip)[0].float().cpu()
    for label, selection in selections.items():
        if selection.corners is not None and label not in maps:
            stride = cast(RegionSelector, cast(nn.ModuleDict, selectors_of(model))[label]).stride
            maps[label] = spread_anchors(selection, stride=stride)
    return Recording(logits, grids[0], grids[1:], dict(selections), maps)


@contextmanager
def watch_maps(model: nn.Module, maps: dict[str, Tensor]) -> Iterator[None]:
    """Note the patches' scores at every site that scores patches; others score whole anchors."""
    handles = []
    for module in (selectors_of(model) or {}).values():
        selector = cast(Selector, module)
        by_anchor = isinstance(selector.scoring, RandomScoring | AnchorFeatureScoring)
        if selector.site.kind == "T" or (by_anchor and isinstance(selector, RegionSelector)):
            continue

        def note(module: nn.Module, arguments: tuple[TokenGrid]) -> None:
            selector = cast(Selector, module)
            maps[selector.site.label] = selector.scoring.score_map(arguments[0])[0].float().cpu()

        handles.append(selector.register_forward_pre_hook(note))
    try:
        yield
    finally:
        for handle in handles:
            handle.remove()


def spread_anchors(selection: Selection, *, stride: Pair | None = None) -> Tensor:
    """Give each patch the average score of the anchors that hold it: (t, h, w), NaN for none."""
    t, h, w = selection.thw_before
    side = selection.thw_after[1:]
    stride = stride or default_stride((h, w), side)
    scores = selection.scores[0].float().cpu()  # (t, g)
    corners = corners_of(torch.arange(scores.shape[1]), (h, w), side, stride)
    total, count = torch.zeros(t, h, w), torch.zeros(t, h, w)
    for anchor, (row, column) in enumerate(corners.tolist()):
        place = (slice(None), slice(row, row + side[0]), slice(column, column + side[1]))
        total[place] += scores[:, anchor, None, None]
        count[place] += 1
    return total / count


def block_strides(model: nn.Module) -> list[THW]:
    """Give the stride by which each block divides its grid."""
    adapter = find_adapter(model)
    strides = []
    for block in adapter.blocks(model):
        t, h, w = (PROBE // side for side in adapter.out_thw(block, (PROBE,) * 3))
        strides.append((t, h, w))
    return strides


def patch_stride(model: nn.Module, *, video: THW, thw: THW) -> THW:
    """Give the stride of the embedding: the model's own word, else what the grid's size implies.

    Args:
        model: any that selectors can be inserted into.
        video: frames, height and width of a clip.
        thw: the grid made of it.
    """
    if hasattr(model, "embed_thw"):
        probed = cast(THW, model.embed_thw(PROBE, PROBE, PROBE))  # type: ignore[operator]
        t, h, w = (PROBE // side for side in probed)
    else:
        t, h, w = (-(-length // side) for length, side in zip(video, thw, strict=True))
    return t, h, w
