"""What is in videos, window by window, and what that costs with selection and without."""

import math
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import closing
from dataclasses import dataclass, replace
from itertools import groupby, pairwise
from typing import Any, Self

import torch
from torch import Tensor, nn

from tokenselect.checkpoints import info_of, plan_of, with_plan
from tokenselect.data import FrameSource, VideoError, open_video
from tokenselect.data.clips import ClipRule
from tokenselect.data.sources import FoundVideo
from tokenselect.data.synthetic import looks_synthetic
from tokenselect.insertion import selectors_of
from tokenselect.measure.accuracy import Runner, score_views
from tokenselect.measure.cost import Timing, count_macs, time_forwards
from tokenselect.plan import SelectionPlan, Site
from tokenselect.selectors import FrameSelector

PROBE_SIDE = 32  # side of the clips that an embedding is tried with
MAX_TIMES = 32  # as many clips make one, at most: 512 frames of a model that takes 16
DOUBT = (
    "is not a synthetic action, and this model knows nothing else: give the --checkpoint of a "
    "model that was trained on such videos, or --model with --weights"
)


@dataclass(frozen=True)
class Moment:
    """What a model sees in one window of a video."""

    start: float  # seconds into the video
    end: float  # seconds into the video
    probabilities: Tensor  # (classes,)

    def top(self, count: int) -> list[tuple[int, float]]:
        """List the most likely classes with their probabilities."""
        values, classes = self.probabilities.topk(min(count, len(self.probabilities)))
        return list(zip(classes.tolist(), values.tolist(), strict=True))


@dataclass(frozen=True)
class Timeline:
    """The windows of a video; of a short one there is one."""

    moments: list[Moment]  # in order
    seconds: float  # length of the video

    @property
    def whole(self) -> Moment:
        """The video as one: the average of its windows."""
        probabilities = torch.stack([moment.probabilities for moment in self.moments]).mean(dim=0)
        return Moment(0.0, self.seconds, probabilities)

    def stretches(self) -> list[Moment]:
        """Join neighbouring windows that agree on the most likely class.

        Where windows overlap, the later begins in the middle of what they share.
        """
        groups = groupby(self.moments, key=lambda moment: moment.top(1)[0][0])
        joined = [list(group) for _, group in groups]
        starts = [0.0, *((a[-1].end + b[0].start) / 2 for a, b in pairwise(joined))]
        ends = [*starts[1:], self.seconds]
        return [
            Moment(start, end, torch.stack([m.probabilities for m in group]).mean(dim=0))
            for start, end, group in zip(starts, ends, joined, strict=True)
        ]


def split_windows(
    source: FrameSource, *, seconds: float, step: float | None = None
) -> list[tuple[int, int]]:
    """Cut a long video into overlapping windows of frames.

    Args:
        seconds: length of a window; 0 never cuts, and nor is a video cut that is less than half
            as long again.
        step: seconds from one window to the next; None for half a window.

    Returns:
        First frame and the one after the last, of each window; the last window ends with the video.
    """
    if seconds < 0 or (step is not None and step <= 0):
        raise ValueError(f"windows need seconds ≥ 0 and a step > 0, got {seconds} and {step}")
    count, fps = source.num_frames, source.fps
    length, stride = (max(1, round(time * fps)) for time in (seconds, step or seconds / 2))
    if seconds == 0 or count < 1.5 * length:
        return [(0, count)]
    starts = [*range(0, count - length, stride), count - length]
    return [(start, start + length) for start in starts]


def knows_synthetic(model: nn.Module) -> bool:
    """Tell whether a model was trained on synthetic actions alone."""
    data = dict(info_of(model).metadata.get("recipe") or {}).get("data", {})
    return bool(data.get("source") == "synthetic")


def check_known(model: nn.Module, videos: Iterable[str]) -> None:
    """Refuse videos of a kind that the model cannot know; the first that can be read tells."""
    for video in videos if knows_synthetic(model) else ():
        try:
            with closing(open_video(video)) as source:
                next(read_windows(source, Reading.of(model)))
                return
        except VideoError as error:
            if error.reason == DOUBT:
                raise


@dataclass(frozen=True)
class Reading:
    """How videos are read."""

    rule: ClipRule  # what the model wants
    clips: int = 1  # of each window of a video
    crops: int = 1  # of each clip
    window: float = 10.0  # seconds of a window of a long video; 0 takes any video as one
    step: float | None = None  # seconds from window to window; None for half a window
    is_synthetic: bool = False  # the model knows synthetic actions alone

    @classmethod
    def of(cls, model: nn.Module, *options: Any) -> Self:
        """Read what a model wants and no more; the options are those from `clips` to `step`."""
        return replace(cls(lean_rule(model), *options), is_synthetic=knows_synthetic(model))


@dataclass(frozen=True)
class Window:
    """One window of a video."""

    start: float  # seconds into the video
    end: float
    crops: Tensor  # (v, t, 3, h, w) uint8
    number: int  # among the windows of the video
    of: int  # windows of the video


def read_windows(source: FrameSource, reading: Reading) -> Iterator[Window]:
    """Cut a video window by window: no more than one is held."""
    spans = split_windows(source, seconds=reading.window, step=reading.step)
    for number, (start, stop) in enumerate(spans, 1):
        crops = reading.rule.read_crops(
            source, start=start, stop=stop, clips=reading.clips, crops=reading.crops
        )
        if reading.is_synthetic and not looks_synthetic(crops[0]):
            raise VideoError(source.path, DOUBT)
        end = float(source.times[stop - 1]) + 1 / source.fps
        yield Window(float(source.times[start]), end, crops, number, len(spans))


def score_windows(
    model: nn.Module, windows: Sequence[Window], *, batch: int, run: Runner | None = None
) -> Tensor:
    """Give (n, classes) probabilities of windows, the equally many views of each averaged.

    A forward pass takes `batch` clips. `run` maps clips to logits in the model's place: its file in
    another runtime.
    """
    crops = torch.stack([window.crops for window in windows])  # (n, v, t, 3, h, w)
    clips = info_of(model).clip_rule.normalize(crops.flatten(0, 1)).unflatten(0, crops.shape[:2])
    device = next(model.parameters()).device
    return score_views(run or model, clips.to(device), views_at_once=batch).cpu()


@torch.inference_mode()
def predict_video(
    model: nn.Module,
    source: FrameSource,
    *,
    clips: int = 1,
    crops: int = 1,
    window: float = 10.0,
    step: float | None = None,
    clips_at_once: int = 4,
    run: Runner | None = None,
    on_window: Callable[[int, int], object] | None = None,
) -> Timeline:
    """Classify a video, or each window of a long one, with the settings of `Reading`.

    Args:
        clips_at_once: of one forward, to bound memory.
        run: maps clips to logits in the model's place: its file in another runtime.
        on_window: told how many of how many windows are done.
    """
    moments = []
    for seen in read_windows(source, Reading.of(model, clips, crops, window, step)):
        scores = score_windows(model, [seen], batch=clips_at_once, run=run)
        moments.append(Moment(seen.start, seen.end, scores[0]))
        if on_window is not None:
            on_window(seen.number, seen.of)
    return Timeline(moments, float(source.times[-1]) + 1 / source.fps)


@torch.inference_mode()
def lean_rule(model: nn.Module) -> ClipRule:
    """Give the model's clip rule, less the frames that its plan drops before block 0 for sure.

    `uniform` and `static` choose by place alone, so what they drop need not be decoded. Which
    frames the kept tokens are made of is tried: a frame of NaN spreads to all that looks at it.
    """
    rule, selector = info_of(model).clip_rule, dict(selectors_of(model) or {}).get("T0")
    if not isinstance(selector, FrameSelector) or not selector.scoring.is_blind:
        return rule
    if not hasattr(model, "embed") or rule.center or knows_synthetic(model):
        return rule  # all frames count
    probe = torch.zeros(rule.frames, 3, rule.frames, PROBE_SIDE, PROBE_SIDE)
    probe[range(rule.frames), :, range(rule.frames)] = float("nan")
    grid = model.embed(probe.to(next(model.parameters()).device))  # type: ignore[operator]
    is_seen = selector(grid).tokens.isnan().flatten(1).any(dim=1)
    return replace(rule, seen=tuple(is_seen.nonzero().flatten().tolist()))


@dataclass(frozen=True)
class WholeVideo:
    """A video taken as one clip."""

    moment: Moment
    frames: int  # of the clip
    plan: SelectionPlan
    gmacs: float


@torch.inference_mode()
def predict_whole(model: nn.Module, source: FrameSource, *, window: float = 10.0) -> WholeVideo:
    """Classify a video as one clip, read as densely in time as the model's own clips.

    The first T site keeps as many frames as of such a clip, so that only the embedding and the
    scorer see more. Positions are interpolated over the clip. `window` has the seconds of a clip,
    where the model's clips have no stride of their own.
    """
    rule, sites = info_of(model).clip_rule, list(plan_of(model))
    place = next((n for n, site in enumerate(sites) if site.kind == "T"), None)
    if place is None:
        raise ValueError(
            "a whole video as one clip needs a plan that drops frames, such as T0_0.25, got "
            f"{plan_of(model)}"
        )
    span = rule.frames * rule.stride if rule.stride else window * source.fps
    times = min(MAX_TIMES, max(1, math.ceil(source.num_frames / span)))
    site = sites[place]
    if isinstance(site.keep, float):
        sites[place] = Site("T", site.block, site.keep / times)
    plan = SelectionPlan(tuple(sites))
    longer = replace(rule, frames=times * rule.frames, stride=None)
    clip = longer.normalize(longer.read_crops(source)).to(next(model.parameters()).device)
    chosen = with_plan(model, plan)
    gmacs = count_macs(chosen, *longer.shape).gmacs
    end = float(source.times[-1]) + 1 / source.fps
    moment = Moment(0.0, end, score_views(chosen, clip[None])[0].cpu())
    return WholeVideo(moment, longer.frames, plan, gmacs)


@dataclass(frozen=True)
class Answer:
    """What is in one video, or why it cannot be read."""

    video: FoundVideo
    timeline: Timeline | None = None
    error: str | None = None
    whole: WholeVideo | None = None


@dataclass(frozen=True)
class Costs:
    """Cost of one view of a clip; milliseconds are None where nothing was timed."""

    gmacs: float
    gmacs_dense: float
    milliseconds: Timing | None = None
    milliseconds_dense: Timing | None = None


def answer_video(
    video: FoundVideo,
    predict: Callable[[FrameSource], Timeline],
    predict_at_once: Callable[[FrameSource], WholeVideo] | None = None,
) -> Answer:
    """Classify a video by `predict_video`, and as one clip by `predict_whole` if that is given.

    Both come with their settings. A video that cannot be read gives its error instead.
    """
    try:
        with closing(video.open()) as source:
            whole = None if predict_at_once is None else predict_at_once(source)
            return Answer(video, predict(source), whole=whole)
    except VideoError as error:
        return Answer(video, error=str(error))


def cost_of(
    model: nn.Module, *, repeats: int = 3, open_run: Callable[[nn.Module], Runner] | None = None
) -> Costs:
    """Count and time one view, with the plan and dense in turns, on the model's device.

    `open_run` gives what runs a model, where torch does not.
    """
    shape = info_of(model).clip_rule.shape
    models = {"dense": with_plan(model, "dense")} | ({"selected": model} if plan_of(model) else {})
    gmacs = {name: count_macs(one, *shape).gmacs for name, one in models.items()}
    timed: dict[str, Timing] = {}
    if repeats:
        device = next(model.parameters()).device
        runners = {name: open_run(one) if open_run else one for name, one in models.items()}
        timed = time_forwards(runners, torch.randn(shape, device=device), repeats=repeats)
    last = next(reversed(models))
    return Costs(gmacs[last], gmacs["dense"], timed.get(last), timed.get("dense"))


def answer_to_dict(answer: Answer, id2label: Mapping[int, str], *, top: int) -> dict[str, Any]:
    """Give an answer as JSON values."""
    told: dict[str, Any] = {"video": answer.video.name}
    if answer.video.label is not None:
        told["truth"] = answer.video.label
    if answer.timeline is None:
        return {**told, "error": answer.error}
    told["seconds"] = round(answer.timeline.seconds, 3)
    told["top"] = guesses(answer.timeline.whole, id2label, top=top)
    if answer.whole is not None:
        told["as_one_clip"] = {
            "frames": answer.whole.frames,
            "plan": str(answer.whole.plan),
            "gmacs": answer.whole.gmacs,
            "top": guesses(answer.whole.moment, id2label, top=top),
        }
    told["timeline"] = [
        {"start": round(m.start, 3), "end": round(m.end, 3), "top": guesses(m, id2label, top=top)}
        for m in answer.timeline.moments
    ]
    return told


def guesses(moment: Moment, id2label: Mapping[int, str], *, top: int) -> list[dict[str, Any]]:
    """List the most likely classes as JSON values."""
    return [
        {"label": id2label[number], "class": number, "probability": round(value, 6)}
        for number, value in moment.top(top)
    ]
