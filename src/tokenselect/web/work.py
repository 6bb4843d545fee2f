"""What a job does: one clip of a video, dense and under a plan."""

from __future__ import annotations

import re
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

from tokenselect.data import FrameSource, VideoError
from tokenselect.plan import SelectionPlan
from tokenselect.prediction.explain import explain_video
from tokenselect.prediction.samples import NUM_SAMPLES, open_sample, sample_label
from tokenselect.visualization.report import story_of
from tokenselect.web.catalogue import Catalogue, own_method, own_plan
from tokenselect.web.errors import Missing
from tokenselect.web.jobs import Tell
from tokenselect.web.schemas import JobRequest
from tokenselect.web.uploads import UploadStore

SAMPLE = re.compile(r"sample:(\d{1,6})")
STEPS = 7  # loading, reading, two plans, timing, counting, drawing


def explain(asked: JobRequest, catalogue: Catalogue, store: UploadStore, tell: Tell) -> Any:
    """Run a job: the story of a clip under the dense model and the plan asked for."""
    tell("loading the model")
    key = asked.model or next(iter(catalogue.offers))
    own = catalogue.open(key)
    plan = SelectionPlan.parse(own_plan(own) if asked.plan is None else asked.plan)
    method = asked.method or (own_method(own) if asked.plan is None else None)
    models = [catalogue.with_plan(key, SelectionPlan(), method=None)]
    if plan:
        models.append(catalogue.with_plan(key, plan, method=method))
    tell("reading the video")
    with open_named(asked.video, store) as (source, name):
        explanation = explain_video(
            models,
            source,
            name=name,
            start=asked.start,
            seconds=asked.seconds,
            repeats=asked.repeats,
            count=catalogue.count_layers,
            tell=tell,
        )
    tell("drawing")
    return story_of(explanation)


def check_video(video: str, store: UploadStore) -> None:
    """Refuse a video that is not there before a job waits for its turn."""
    match = SAMPLE.fullmatch(video)
    if match is None:
        store.check(video)
    elif int(match[1]) >= NUM_SAMPLES:
        raise Missing(f"samples are numbered 0 to {NUM_SAMPLES - 1}, got {video!r}")


@contextmanager
def open_named(video: str, store: UploadStore) -> Iterator[tuple[FrameSource, str]]:
    """Find a sample or an upload, nothing else: a client cannot name a file of this machine."""
    if match := SAMPLE.fullmatch(video):
        number = int(match[1])
        sample = open_sample(number)
        yield sample, f"sample {number}: {sample_label(number)}"
        return
    with store.borrow(video) as upload:
        try:
            yield upload.source, upload.name
        except VideoError as error:  # knows the file's place, not its name
            raise VideoError(upload.name, error.reason) from error


def without_pictures(story: dict[str, Any]) -> dict[str, Any]:
    """Leave the pictures out of a story: numbers only."""
    plans = [
        {
            **plan,
            "sites": [
                {name: value for name, value in site.items() if name not in ("heat", "gone")}
                for site in plan["sites"]
            ],
        }
        for plan in story["plans"]
    ]
    return {**story, "clip": {**story["clip"], "frames": []}, "plans": plans}
