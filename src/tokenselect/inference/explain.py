"""One clip under several plans: what was kept, why, what it cost, what it changed."""

from collections.abc import Callable, Iterator, Sequence
from contextlib import AbstractContextManager, ExitStack, closing, contextmanager, nullcontext
from dataclasses import dataclass, replace
from functools import partial
from pathlib import Path
from typing import cast

import torch
from torch import Tensor, nn

from tokenselect.checkpoints import info_of, method_of, plan_of, remarks_of, with_plan
from tokenselect.checkpoints.model import DEFAULT_PLAN
from tokenselect.data import FrameSource
from tokenselect.data.clips import ClipRule
from tokenselect.data.frame_source import escape_unprintable
from tokenselect.data.sources import find_videos
from tokenselect.data.synthetic import looks_synthetic
from tokenselect.grid import TokenGrid
from tokenselect.inference.predict import DOUBT, knows_synthetic
from tokenselect.inference.preprocessor import Video, open_frames
from tokenselect.insertion import adapter_of, record_selections, selectors_of, watch_grids
from tokenselect.measure import cost
from tokenselect.measure.accuracy import Runner
from tokenselect.ops.anchors import Pair, corners_of, default_stride
from tokenselect.plan import THW, SelectionPlan
from tokenselect.selectors import RegionSelector, Selection, Selector
from tokenselect.selectors.baselines import RandomScoring
from tokenselect.selectors.scoring import AnchorFeatureScoring, Scoring
from tokenselect.visualization.explanation import ClipStory, Explanation, PlanStory, SiteStory
from tokenselect.visualization.tracing import to_pixels, trace_sites

PROBE = 960  # a side that every stride divides
PlanOrText = SelectionPlan | str
CountLayers = Callable[[nn.Module, list[THW], tuple[int, ...]], list[cost.Layer]]


@dataclass(frozen=True)
class Recording:
    """What happened in one forward of one clip."""

    logits: Tensor  # (classes,)
    thw: THW  # the grid that the embedding made
    grids: list[THW]  # the grid that entered each block, after the selection before it
    selections: dict[str, Selection]  # by site, batch of one
    maps: dict[str, Tensor]  # by region site, the (t, h, w) scores of the patches


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
        elif selection.site.kind == "S" and label not in maps:
            maps[label] = selection.scores[0].float().cpu().view(selection.thw_before)
    return Recording(logits, grids[0], grids[1:], dict(selections), maps)


@contextmanager
def watch_maps(model: nn.Module, maps: dict[str, Tensor]) -> Iterator[None]:
    """Note the patches' scores at every site that scores patches; others score whole anchors."""

    def note(module: nn.Module, arguments: tuple[TokenGrid]) -> None:
        selector = cast(Selector, module)
        maps[selector.site.label] = selector.scoring.score_map(arguments[0])[0].float().cpu()

    with ExitStack() as hooks:
        for module in (selectors_of(model) or {}).values():
            selector = cast(Selector, module)
            by_anchor = isinstance(selector.scoring, RandomScoring | AnchorFeatureScoring)
            by_anchor = by_anchor and isinstance(selector, RegionSelector)
            has_map = type(selector.scoring).score_map is not Scoring.score_map
            if selector.site.kind != "T" and has_map and not by_anchor:
                hooks.enter_context(selector.register_forward_pre_hook(note))
        yield


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
    adapter = adapter_of(model)
    after = [adapter.out_thw(block, (PROBE,) * 3) for block in adapter.blocks(model)]
    return [(PROBE // t, PROBE // h, PROBE // w) for t, h, w in after]


def patch_stride(model: nn.Module, *, video: THW, thw: THW) -> THW:
    """Give the stride of the embedding: the model's own word, else what the grid's size implies.

    `video` has the frames, height and width of a clip, `thw` the grid made of it.
    """
    if hasattr(model, "embed_thw"):
        probed = cast(THW, model.embed_thw(PROBE, PROBE, PROBE))  # type: ignore[operator]
        t, h, w = (PROBE // side for side in probed)
    else:
        t, h, w = (-(-length // side) for length, side in zip(video, thw, strict=True))
    return t, h, w


def explain(
    model: nn.Module,
    video: Video,
    *,
    plan: PlanOrText | Sequence[PlanOrText] | None = None,
    method: str | None = None,
    start: float = 0.0,
    seconds: float | None = None,
    repeats: int = 0,
) -> Explanation:
    """Show what a model keeps of one clip, why, what that costs and what it changes: dense first.

    Args:
        video: a file, an address, "sample:3", or frames as `Preprocessor` takes them.
        plan: one or several to explain beside the dense model; None for the model's own.
        method: of selection, in place of the model's own.
        start: seconds into the video at which the part to look at begins.
        seconds: length of that part; None for all that follows. The clip is its middle.
        repeats: timed forwards of each plan; 0 times nothing.
    """
    if plan is None and not plan_of(model):  # a dense model has no trained selector
        plan, method = DEFAULT_PLAN, method or "motion"
    plans = [plan_of(model)] if plan is None else [plan] if isinstance(plan, PlanOrText) else plan
    models = [with_plan(model, "dense"), *(with_plan(model, p, method=method) for p in plans)]
    if isinstance(video, str | Path):
        found, *others = find_videos([str(video)])
        if others:
            raise ValueError(f"explain takes one video, {video} stands for {1 + len(others)}")
        source, name = found.open(), found.name
    else:
        source, name = open_frames(video), "frames"
    explain_it = partial(explain_video, models, name=name, start=start, seconds=seconds)
    with closing(source):
        return explain_it(source, repeats=repeats, tell=cost.be_silent)


def explain_video(
    models: Sequence[nn.Module],
    source: FrameSource,
    *,
    name: str,
    start: float = 0.0,
    seconds: float | None = None,
    repeats: int = 3,
    count: CountLayers = cost.layer_costs,
    open_run: Callable[[nn.Module], Runner] | None = None,
    tell: Callable[[str], object] = print,
) -> Explanation:
    """Explain one clip of a video, with the settings of `explain`.

    Args:
        models: the same backbone under one or more plans; the first is compared with.
        count: counts multiply-adds; someone who asks again may remember them.
        open_run: gives what answers and is timed in a model's place: its file in a runtime.
    """
    first, info, name = models[0], info_of(models[0]), escape_unprintable(name)
    numbers = choose_frames(source, info.clip_rule, start=start, seconds=seconds)
    frames = source.read(numbers)
    (view,) = info.clip_rule.views((frames.shape[2], frames.shape[3]))
    inputs = info.clip_rule.cut(frames, [view]).to(next(first.parameters()).device)
    recordings, runners = [], dict[str, Runner]()
    for model in models:
        tell(f"running plan {plan_of(model)}")
        recording = record_clip(model, inputs)
        runners[str(plan_of(model))] = run = open_run(model) if open_run else model
        if run is not model:
            recording = replace(recording, logits=run(inputs)[0])
        recordings.append(recording)
    stride = patch_stride(first, video=(len(numbers), *view.size), thw=recordings[0].thw)
    times = [float(source.times[number]) for number in numbers]
    clip = ClipStory(name, frames, numbers, times, view, stride)
    tell("timing")
    latency = cost.time_forwards(runners, inputs, repeats=repeats) if repeats else {}
    tell("counting multiply-adds")
    plans = []
    for model, recording in zip(models, recordings, strict=True):
        layers = count(model, recording.grids, info.clip_rule.shape)
        time = latency.get(str(plan_of(model)))
        plans.append(tell_plan(model, recording, clip, layers=layers, milliseconds=time))
    notes = list(dict.fromkeys(remark for model in models for remark in remarks_of(model)))
    if noisy := find_noisy(latency):
        notes.append(f"{', '.join(noisy)}: {cost.NOISY}")
    names = info.class_names
    if knows_synthetic(first) and not looks_synthetic(frames):
        notes.insert(0, f"{name} {DOUBT}")
        names = ["unknown to this model"] * len(names)
    return Explanation(info.name, names, clip, plans, notes)


def choose_frames(
    source: FrameSource, rule: ClipRule, *, start: float, seconds: float | None
) -> list[int]:
    """Pick the frames of one clip in the middle of a part of the video."""
    length = float(source.times[-1]) + 1 / source.fps
    if not 0 <= start < length:
        raise ValueError(f"start must be in [0, {length:.2f}) seconds, got {start:g}")
    first, stop = int((source.times < start).sum()), source.num_frames
    if seconds is not None:
        stop = max(first + 1, int((source.times < start + seconds).sum()))
    return rule.sample(first, stop)[0]


def find_noisy(latency: dict[str, cost.Timing]) -> list[str]:
    """List the plans whose time cannot be told from the first one's."""
    if not latency:
        return []
    first, *others = latency
    return [plan for plan in others if not cost.are_told_apart(latency[first], latency[plan])]


def tell_plan(
    model: nn.Module,
    recording: Recording,
    clip: ClipStory,
    *,
    layers: list[cost.Layer],
    milliseconds: cost.Timing | None,
) -> PlanStory:
    """Put together what one plan did to the clip."""
    traces = trace_sites(recording.selections, thw=recording.thw, strides=block_strides(model))
    sites = []
    for label, (before, after) in traces.items():
        selection = recording.selections[label]
        if selection.site.kind == "T":
            _, h, w = selection.thw_before
            scores = selection.scores[0, :, None, None].float().cpu().expand(-1, h, w)
        else:
            scores = recording.maps[label]
        site, thws = selection.site, (selection.thw_before, selection.thw_after)
        kept = to_pixels(after.is_kept, stride=clip.stride, video=clip.video)
        told = (str(site), site.kind, site.block, *thws, before.spread(scores), kept)
        sites.append(SiteStory(*told))
    return PlanStory(
        plan=str(plan_of(model)),
        probabilities=recording.logits.softmax(dim=0),
        sites=sites,
        layers=layers,
        milliseconds=milliseconds,
        method=method_of(model) if plan_of(model) else None,
    )
