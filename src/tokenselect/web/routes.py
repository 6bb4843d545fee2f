"""The routes of the API: models, videos and jobs."""

import base64
import io
import re
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from functools import cache
from importlib import resources
from pathlib import PurePosixPath
from typing import Any

import numpy as np
import torch
from fastapi import APIRouter, Request
from fastapi.responses import HTMLResponse, Response
from PIL import Image
from torch import Tensor, nn

from tokenselect.checkpoints import info_of, method_of, plan_of, remarks_of
from tokenselect.checkpoints.model import UNTRAINED
from tokenselect.data import FrameSource, VideoError
from tokenselect.data.sources import NUM_SAMPLES, open_sample, sample_label
from tokenselect.inference.explain import explain_video
from tokenselect.inference.live import Watcher
from tokenselect.plan import SelectionPlan
from tokenselect.visualization.report import build_page, story_of
from tokenselect.visualization.report.page import read_part
from tokenselect.web.catalogue import Catalogue, count_blocks, own_method, own_plan, own_sites
from tokenselect.web.guard import Limits, Missing, QueueFull
from tokenselect.web.jobs import Job, JobQueue, Tell
from tokenselect.web.schemas import (
    Info,
    JobEntry,
    JobRequest,
    LiveEntry,
    LiveRequest,
    ModelDetail,
    ModelEntry,
    PlanEntry,
    SampleEntry,
    SiteEntry,
    VideoEntry,
    fails,
)
from tokenselect.web.uploads import Upload, UploadStore

THUMB = 96  # pixels


@cache
def index_page() -> str:
    """Give the page with the report's sections in their place."""
    return read_own("index.html").replace("{{sections}}", read_part("sections.html").rstrip())


@cache
def read_asset(name: str) -> tuple[str, str] | None:
    """Give text and media type of a file of the page; None for any other name."""
    readers = {
        "style.css": (read_own, "style.css", "text/css"),
        "script.js": (read_own, "script.js", "text/javascript"),
        "plan.js": (read_own, "plan.js", "text/javascript"),
        "live.js": (read_own, "live.js", "text/javascript"),
        "report.css": (read_part, "style.css", "text/css"),
        "report.js": (read_part, "script.js", "text/javascript"),
    }
    if name not in readers:
        return None
    read, file, media_type = readers[name]
    return read(file), media_type


def read_own(name: str) -> str:
    """Read a file of this folder, also from a zipped package."""
    return (resources.files(__package__) / name).read_text(encoding="utf-8")


@cache
def sample_picture(number: int) -> bytes:
    """Draw the middle frame of a sample as a small JPEG."""
    frame = open_sample(number).frames
    middle = frame[len(frame) // 2].permute(1, 2, 0).contiguous().numpy()
    buffer = io.BytesIO()
    Image.fromarray(middle).resize((THUMB, THUMB)).save(buffer, "JPEG", quality=85)
    return buffer.getvalue()


SAMPLE = re.compile(r"sample:(\d{1,6})")
STEPS = 7  # loading, reading, two plans, timing, counting, drawing


def explain(asked: JobRequest, catalogue: Catalogue, store: UploadStore, tell: Tell) -> Any:
    """Run a job: the story of a clip under the dense model and the plan asked for."""
    tell("loading the model")
    key = asked.model or next(iter(catalogue.offers))
    chosen = choose_model(asked, catalogue)
    models = [catalogue.with_plan(key, SelectionPlan(), method=None)]
    if plan_of(chosen):
        models.append(chosen)
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
            open_run=catalogue.run,
            tell=tell,
        )
    tell("drawing")
    return story_of(explanation)


def choose_model(asked: JobRequest | LiveRequest, catalogue: Catalogue) -> nn.Module:
    """Give the model that was asked for, under the plan that was asked for."""
    key = asked.model or next(iter(catalogue.offers))
    own = catalogue.open(key)
    plan = SelectionPlan.parse(own_plan(own) if asked.plan is None else asked.plan)
    method = asked.method or (own_method(own) if asked.plan is None else None)
    return catalogue.with_plan(key, plan, method=method)


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
    none = {"heat": None, "gone": None}
    plans = [
        {**plan, "sites": [{**site, **none} for site in plan["sites"]]} for plan in story["plans"]
    ]
    return {**story, "clip": {**story["clip"], "frames": []}, "plans": plans}


def model_routes(catalogue: Catalogue, limits: Limits) -> APIRouter:
    """Make the routes that change nothing."""
    routes = APIRouter(prefix="/api", tags=["choices"])

    @routes.get("/info")
    def info() -> Info:
        """Give the models, methods, samples and limits."""
        return Info(
            models=[ModelEntry(key=k, title=o.title) for k, o in catalogue.offers.items()],
            methods=list(UNTRAINED),
            samples=[
                SampleEntry(
                    video=f"sample:{n}", label=sample_label(n), picture=f"/api/samples/{n}.jpg"
                )
                for n in range(NUM_SAMPLES)
            ],
            max_mb=limits.max_mb,
            max_seconds=limits.max_seconds,
        )

    @routes.get("/models/{key}", responses=fails(404))
    def model(key: str) -> ModelDetail:
        """Open a model and say what it takes; a large one needs some seconds."""
        model = catalogue.open(key)
        info = info_of(model)
        return ModelDetail(
            key=key,
            title=catalogue.offers[key].title,
            name=info.name,
            blocks=count_blocks(model),
            sites=own_sites(model),
            plan=own_plan(model),
            method=method_of(model),
            first_method=own_method(model),
            input=[info.clip_rule.frames, *info.clip_rule.size],
            classes=len(info.id2label),
            notes=list(info.notes),
        )

    @routes.get("/models/{key}/plan", responses=fails(404, 422))
    def plan(key: str, text: str, method: str | None = None) -> PlanEntry:
        """Read a plan and put it into the model, without running it."""
        parsed = SelectionPlan.parse(text[:500])
        model = catalogue.with_plan(key, parsed, method=method)
        return PlanEntry(plan=str(parsed), sites=describe_sites(parsed), notes=remarks_of(model))

    @routes.get("/samples/{number}.jpg", response_class=Response, responses=fails(422))
    def picture(number: int) -> Response:
        """Give one frame of a sample."""
        return Response(sample_picture(number), media_type="image/jpeg")

    return routes


def describe_sites(plan: SelectionPlan) -> list[SiteEntry]:
    """Take a plan apart, for the sliders."""
    return [
        SiteEntry(
            text=str(site),
            kind=site.kind,  # type: ignore[arg-type]
            block=site.block,
            ratio=site.keep if isinstance(site.keep, float) else None,
        )
        for site in plan
    ]


BODY = {"content": {"video/*": {"schema": {"type": "string", "format": "binary"}}}}


def video_routes(store: UploadStore) -> APIRouter:
    """Make the routes of uploads."""
    routes = APIRouter(prefix="/api/videos", tags=["videos"])

    @routes.post(
        "",
        status_code=201,
        responses=fails(408, 413, 422, 429),
        openapi_extra={"requestBody": BODY},
    )
    async def upload(request: Request, name: str = "video") -> VideoEntry:
        """Take the bytes of a video file; `name` is for messages and titles."""
        name = short_name(name)
        size = request.headers.get("content-length", "")
        announced = int(size) if size.isdecimal() else None
        return describe_upload(await store.receive(request.stream(), name=name, size=announced))

    @routes.delete("/{video}", status_code=204, responses=fails(404))
    def remove(video: str) -> Response:
        """Delete an upload."""
        store.remove(video)
        return Response(status_code=204)

    return routes


def short_name(name: str) -> str:
    """Keep what a person calls a file: no folders, no control characters, not too long."""
    last = PurePosixPath(name.replace("\\", "/")).name
    return "".join(letter for letter in last if letter.isprintable())[-120:] or "video"


def describe_upload(upload: Upload) -> VideoEntry:
    """Say what was uploaded."""
    height, width = upload.source.size
    return VideoEntry(
        video=upload.id,
        name=upload.name,
        seconds=round(upload.seconds, 3),
        frames=upload.source.num_frames,
        fps=round(upload.source.fps, 3),
        width=width,
        height=height,
    )


REPORT_HEADERS = {  # its script and style are inside it
    "Content-Disposition": 'attachment; filename="kept.html"',
    "Content-Security-Policy": (
        "default-src 'none'; script-src 'unsafe-inline'; style-src 'unsafe-inline'; img-src data:"
    ),
}


def job_routes(catalogue: Catalogue, store: UploadStore, queue: JobQueue) -> APIRouter:
    """Make the routes of jobs."""
    routes = APIRouter(prefix="/api/jobs", tags=["jobs"])

    @routes.post("", status_code=202, responses=fails(404, 422, 429))
    def begin(asked: JobRequest) -> JobEntry:
        """Put a job in line: one clip, dense and under the plan."""
        if asked.plan is not None:
            SelectionPlan.parse(asked.plan)  # a typing mistake is answered at once
        if asked.model is not None and asked.model not in catalogue.offers:
            raise ValueError(f"no model {asked.model!r}; there are {', '.join(catalogue.offers)}")
        check_video(asked.video, store)
        job = queue.add(lambda tell: explain(asked, catalogue, store, tell), steps=STEPS)
        return describe_job(job, has_pictures=False)

    @routes.get("/{job}", responses=fails(404))
    def look(job: str, pictures: bool = True) -> JobEntry:
        """Say how far a job is; with its result once it is done."""
        return describe_job(queue.get(job), has_pictures=pictures)

    @routes.delete("/{job}", responses=fails(404))
    def cancel(job: str) -> JobEntry:
        """Cancel a job; a running one leaves at its next step."""
        return describe_job(queue.cancel(job), has_pictures=False)

    @routes.get("/{job}/report.html", response_class=HTMLResponse, responses=fails(404))
    def report(job: str) -> HTMLResponse:
        """Give the result as one self-contained page to keep."""
        result = queue.get(job).result
        if result is None:
            raise Missing(f"job {job!r} has no result")
        return HTMLResponse(build_page(result), headers=REPORT_HEADERS)

    return routes


def live_routes(catalogue: Catalogue) -> APIRouter:
    """Make the route of the camera: the page sends the last seconds again and again."""
    routes = APIRouter(prefix="/api", tags=["live"])
    turn = threading.Lock()
    latest: list[Watcher] = []  # of the model and plan that were asked for last

    @routes.post("/live", responses=fails(404, 422, 429))
    def look(asked: LiveRequest) -> LiveEntry:
        """Answer a camera's last seconds; one clip at a time, whoever asks."""
        if not turn.acquire(blocking=False):
            raise QueueFull("another clip is being answered: send the next one a little later")
        try:
            model = choose_model(asked, catalogue)
            if not latest or latest[0].model is not model:
                latest[:] = [Watcher(model)]
            found = latest[0].look(read_pictures(asked.frames), fps=asked.fps, name="camera")
            return LiveEntry.model_validate(found.to_dict(top=3))
        finally:
            turn.release()

    return routes


def read_pictures(addresses: list[str]) -> Tensor:
    """Read JPEG pictures of one size from data addresses: (t, 3, h, w) uint8."""
    pictures = []
    for address in addresses:
        try:
            data = base64.b64decode(address.partition(",")[2], validate=True)
            with Image.open(io.BytesIO(data), formats=["JPEG"]) as picture:
                if picture.width * picture.height > 2**20:
                    raise ValueError(f"is {picture.width} × {picture.height}, more than 2²⁰ pixels")
                pictures.append(torch.from_numpy(np.array(picture.convert("RGB"))))
        except (ValueError, OSError) as error:
            raise ValueError(f"frame {len(pictures)} is no JPEG of a camera: {error}") from None
    if len({picture.shape for picture in pictures}) > 1:
        raise ValueError("frames must all have one size")
    return torch.stack(pictures).permute(0, 3, 1, 2)


def describe_job(job: Job, *, has_pictures: bool) -> JobEntry:
    """Say how far a job is."""
    entry = JobEntry(
        job=job.id, state=job.state, doing=job.doing, progress=job.progress, error=job.error
    )
    if job.state == "done" and job.result is not None:
        result = job.result if has_pictures else without_pictures(job.result)
        return JobEntry.model_validate({**entry.model_dump(), "result": result})
    return entry
