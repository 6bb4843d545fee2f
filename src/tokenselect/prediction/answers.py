"""Many videos, one model: what is in each, and what that costs with selection and without."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any

import torch

from tokenselect.data import VideoError
from tokenselect.prediction.costs import count_gmacs, time_forwards
from tokenselect.prediction.loaded import LoadedModel
from tokenselect.prediction.predict import Moment, Timeline, predict_video
from tokenselect.prediction.sources import Video


@dataclass(frozen=True)
class Answer:
    """What is in one video, or why it cannot be read."""

    video: Video
    timeline: Timeline | None = None
    error: str | None = None


@dataclass(frozen=True)
class Costs:
    """Cost of one view of a clip; milliseconds are None where nothing was timed."""

    gmacs: float
    gmacs_dense: float
    milliseconds: float | None = None
    milliseconds_dense: float | None = None


def answer_videos(
    loaded: LoadedModel,
    videos: Sequence[Video],
    *,
    clips: int = 1,
    crops: int = 1,
    window: float = 10.0,
    step: float | None = None,
    on_video: Callable[[Answer], object] | None = None,
    on_window: Callable[[Video, int, int], object] | None = None,
) -> list[Answer]:
    """Classify videos one after another; one that cannot be read does not stop the others.

    Args:
        loaded: the model.
        videos: as `find_videos` gives them.
        clips: of each window of a video.
        crops: of each clip.
        window: seconds of a window of a long video; 0 takes any video as one.
        step: seconds from window to window.
        on_video: told each answer.
        on_window: told the video, and how many of how many of its windows are done.
    """
    answers = []
    for video in videos:
        try:
            answer = Answer(video, _answer(loaded, video, clips, crops, window, step, on_window))
        except VideoError as error:
            answer = Answer(video, error=str(error))
        answers.append(answer)
        if on_video is not None:
            on_video(answer)
    return answers


def _answer(
    loaded: LoadedModel,
    video: Video,
    clips: int,
    crops: int,
    window: float,
    step: float | None,
    on_window: Callable[[Video, int, int], object] | None,
) -> Timeline:
    source = video.open()
    try:
        return predict_video(
            loaded.model,
            source,
            rule=loaded.rule,
            clips=clips,
            crops=crops,
            window=window,
            step=step,
            on_window=None if on_window is None else lambda *done: on_window(video, *done),
        )
    finally:
        source.close()


def cost_of(loaded: LoadedModel, *, repeats: int = 3) -> Costs:
    """Count and time one view, with the plan and dense, on the model's device.

    Args:
        loaded: the model.
        repeats: timed forwards of each, in turns; 0 times nothing.
    """
    shape = loaded.rule.shape
    models = {"dense": loaded.with_plan("dense").model}
    if loaded.plan:
        models["selected"] = loaded.model
    gmacs = {name: count_gmacs(model, shape) for name, model in models.items()}
    timed: dict[str, float] = {}
    if repeats:
        device = next(loaded.model.parameters()).device
        timed = time_forwards(models, torch.randn(shape, device=device), repeats=repeats)
    last = "selected" if loaded.plan else "dense"
    return Costs(gmacs[last], gmacs["dense"], timed.get(last), timed.get("dense"))


def answer_to_dict(answer: Answer, loaded: LoadedModel, *, top: int) -> dict[str, Any]:
    """Give an answer as JSON values."""
    told: dict[str, Any] = {"video": answer.video.name}
    if answer.video.label is not None:
        told["truth"] = answer.video.label
    if answer.timeline is None:
        return {**told, "error": answer.error}
    told["seconds"] = round(answer.timeline.seconds, 3)
    told["top"] = guesses(answer.timeline.whole, loaded, top=top)
    told["timeline"] = [
        {
            "start": round(moment.start, 3),
            "end": round(moment.end, 3),
            "top": guesses(moment, loaded, top=top),
        }
        for moment in answer.timeline.moments
    ]
    return told


def guesses(moment: Moment, loaded: LoadedModel, *, top: int) -> list[dict[str, Any]]:
    """List the most likely classes as JSON values."""
    return [
        {"label": loaded.class_names[number], "class": number, "probability": round(value, 6)}
        for number, value in moment.top(top)
    ]
