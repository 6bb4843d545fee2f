"""One clip under several plans: what was kept, why, what it cost, what it changed."""

from __future__ import annotations

from collections.abc import Callable, Sequence

from torch import Tensor, nn

from tokenselect.data import FrameSource
from tokenselect.plan import THW
from tokenselect.prediction.clip_rule import ClipRule
from tokenselect.prediction.costs import layer_costs, time_forwards
from tokenselect.prediction.loaded import LoadedModel
from tokenselect.prediction.recording import (
    Recording,
    block_strides,
    patch_stride,
    record_clip,
)
from tokenselect.visualization.explanation import (
    ClipStory,
    Explanation,
    Layer,
    PlanStory,
    SiteStory,
)
from tokenselect.visualization.pixels import to_pixels
from tokenselect.visualization.tracing import trace_sites

CountLayers = Callable[[nn.Module, list[THW], tuple[int, ...]], list[Layer]]


def explain_video(
    models: Sequence[LoadedModel],
    source: FrameSource,
    *,
    name: str,
    start: float = 0.0,
    seconds: float | None = None,
    repeats: int = 3,
    count: CountLayers = layer_costs,
    tell: Callable[[str], object] = print,
) -> Explanation:
    """Explain one clip of a video.

    Args:
        models: the same backbone under one or more plans; the first is compared with.
        source: the video.
        name: of the video, as shown.
        start: seconds into the video.
        seconds: length of the part that the clip is taken from; None for all that follows.
        repeats: timed forwards of each plan; 0 times nothing.
        count: counts multiply-adds; someone who asks again may remember them.
        tell: told what is being done.
    """
    first = models[0]
    numbers = choose_frames(source, first.rule, start=start, seconds=seconds)
    frames = source.read(numbers)
    (view,) = first.rule.views((frames.shape[2], frames.shape[3]))
    device = next(first.model.parameters()).device
    inputs = first.rule.cut(frames, [view]).to(device)
    recordings = []
    for loaded in models:
        tell(f"running plan {loaded.plan}")
        recordings.append(record_clip(loaded.model, inputs))
    video = (len(numbers), *view.size)
    stride = patch_stride(first.model, video=video, thw=recordings[0].thw)
    times = [float(source.times[number]) for number in numbers]
    clip = ClipStory(name, frames, numbers, times, view, stride)
    latency = measure(models, inputs, repeats=repeats, tell=tell)
    tell("counting multiply-adds")
    plans = [
        tell_plan(
            loaded,
            recording,
            clip,
            layers=count(loaded.model, recording.grids, first.rule.shape),
            milliseconds=latency.get(str(loaded.plan)),
        )
        for loaded, recording in zip(models, recordings, strict=True)
    ]
    notes = list(dict.fromkeys(remark for loaded in models for remark in loaded.remarks))
    return Explanation(first.name, first.class_names, clip, plans, notes)


def choose_frames(
    source: FrameSource, rule: ClipRule, *, start: float, seconds: float | None
) -> list[int]:
    """Pick the frames of one clip in the middle of a part of the video."""
    length = float(source.times[-1]) + 1 / source.fps
    if not 0 <= start < length:
        raise ValueError(f"start must be in [0, {length:.2f}) seconds, got {start:g}")
    first = int((source.times < start).sum())
    stop = source.num_frames
    if seconds is not None:
        stop = max(first + 1, int((source.times < start + seconds).sum()))
    return rule.sample(first, stop)[0]


def measure(
    models: Sequence[LoadedModel], inputs: Tensor, *, repeats: int, tell: Callable[[str], object]
) -> dict[str, float]:
    """Time the plans in turns: milliseconds by plan."""
    if not repeats:
        return {}
    tell("timing")
    named = {str(loaded.plan): loaded.model for loaded in models}
    return time_forwards(named, inputs, repeats=repeats)


def tell_plan(
    loaded: LoadedModel,
    recording: Recording,
    clip: ClipStory,
    *,
    layers: list[Layer],
    milliseconds: float | None,
) -> PlanStory:
    """Put together what one plan did to the clip."""
    traces = trace_sites(
        recording.selections, thw=recording.thw, strides=block_strides(loaded.model)
    )
    sites = []
    for label, (before, after) in traces.items():
        selection = recording.selections[label]
        if selection.site.kind == "T":
            _, h, w = selection.thw_before
            scores = selection.scores[0, :, None, None].float().cpu().expand(-1, h, w)
        else:
            scores = recording.maps[label]
        kept = to_pixels(after.is_kept, stride=clip.stride, video=clip.video)
        sites.append(
            SiteStory(
                text=str(selection.site),
                kind=selection.site.kind,
                block=selection.site.block,
                thw_before=selection.thw_before,
                thw_after=selection.thw_after,
                scores=before.spread(scores),
                kept=kept,
            )
        )
    return PlanStory(
        plan=str(loaded.plan),
        probabilities=recording.logits.softmax(dim=0),
        sites=sites,
        layers=layers,
        milliseconds=milliseconds,
    )
