"""The application: the page, and the API that it uses, with models, videos and jobs."""

import asyncio
import base64
import io
import re
import threading
from collections.abc import AsyncIterator, Collection, Iterator
from contextlib import asynccontextmanager, contextmanager, suppress
from dataclasses import dataclass, field
from functools import cache
from importlib import resources
from pathlib import PurePosixPath
from typing import Annotated, Any

import numpy as np
import torch
from fastapi import APIRouter, Depends, FastAPI, Request
from fastapi.exceptions import RequestValidationError
from fastapi.responses import HTMLResponse, JSONResponse, Response
from fastapi.staticfiles import StaticFiles
from PIL import Image
from starlette.requests import ClientDisconnect
from torch import Tensor, nn

from tokenselect.checkpoints import info_of, method_of, plan_of, remarks_of
from tokenselect.checkpoints.model import UNTRAINED
from tokenselect.data import FrameSource, VideoError
from tokenselect.data.frame_source import check_frame_size
from tokenselect.data.sources import NUM_SAMPLES, open_sample
from tokenselect.data.synthetic import CLASS_NAMES
from tokenselect.inference.explain import explain_video
from tokenselect.inference.live import Watcher
from tokenselect.insertion import adapter_of
from tokenselect.plan import SelectionPlan
from tokenselect.visualization.report import build_page, read_asset, story_of
from tokenselect.web import schemas
from tokenselect.web.catalogue import Catalogue, own_choice
from tokenselect.web.guard import LOOPBACK, Guard, Limits, Missing, QueueFull, TooLarge
from tokenselect.web.jobs import Job, JobQueue, Tell
from tokenselect.web.uploads import UploadStore


@dataclass
class Service:
    """What the routes work with."""

    catalogue: Catalogue
    limits: Limits
    store: UploadStore
    queue: JobQueue
    turn: threading.Lock = field(default_factory=threading.Lock)  # of one camera at a time
    watcher: Watcher | None = None  # of the model and plan that a camera asked for last


async def find_service(request: Request) -> Service:
    """Give the application's own."""
    return request.app.state.service


Here = Annotated[Service, Depends(find_service)]
routes = APIRouter(prefix="/api")
SAMPLE = re.compile(r"sample:(\d{1,6})")
STEPS = 7  # loading, reading, two plans, timing, counting, drawing


def explain_clip(asked: schemas.JobRequest, here: Service, tell: Tell) -> dict[str, Any]:
    """Run a job: the story of a clip under the dense model and the plan asked for."""
    tell("loading the model")
    key = asked.model or next(iter(here.catalogue.offers))
    chosen = choose_model(asked, here.catalogue)
    dense = here.catalogue.with_plan(key, SelectionPlan(), method=None)
    models = [dense, chosen] if plan_of(chosen) else [dense]
    tell("reading the video")
    how = asked.model_dump(include={"start", "seconds", "repeats"})
    how |= {"count": here.catalogue.layers_of, "open_run": here.catalogue.run}
    with open_named(asked.video, here.store) as (source, name):
        explanation = explain_video(models, source, name=name, **how, tell=tell)
    tell("drawing")
    return story_of(explanation)


def choose_model(asked: schemas.Asked, catalogue: Catalogue) -> nn.Module:
    """Give the model that was asked for, under the plan that was asked for."""
    key = asked.model or next(iter(catalogue.offers))
    _, plan, method = own_choice(catalogue.open(key))
    if asked.plan is not None:
        plan, method = asked.plan, None
    return catalogue.with_plan(key, SelectionPlan.parse(plan), method=asked.method or method)


@contextmanager
def open_named(video: str, store: UploadStore) -> Iterator[tuple[FrameSource, str]]:
    """Find a sample or an upload, nothing else: a client cannot name a file of this machine."""
    if match := SAMPLE.fullmatch(video):
        number = int(match[1])
        yield open_sample(number), f"sample {number}: {CLASS_NAMES[number]}"
        return
    with store.borrow(video) as upload:
        try:
            yield upload.source, upload.name
        except VideoError as error:  # knows the file's place, not its name
            raise VideoError(upload.name, error.reason) from error


@routes.get("/info")
def info(here: Here) -> schemas.Info:
    """Give the models, methods, samples and here.limits."""
    samples = [(f"sample:{n}", CLASS_NAMES[n], f"/api/samples/{n}.jpg") for n in range(NUM_SAMPLES)]
    return schemas.Info(
        models=[schemas.ModelEntry(key=k, title=o.title) for k, o in here.catalogue.offers.items()],
        methods=list(UNTRAINED),
        samples=[schemas.SampleEntry(video=v, label=n, picture=p) for v, n, p in samples],
        max_mb=here.limits.max_mb,
        max_seconds=here.limits.max_seconds,
    )


@routes.get("/models/{key}", responses=schemas.fails(404))
def model(key: str, here: Here) -> schemas.ModelDetail:
    """Open a model and say what it takes; a large one needs some seconds."""
    model = here.catalogue.open(key)
    info, (sites, plan, first_method) = info_of(model), own_choice(model)
    return schemas.ModelDetail(
        key=key,
        title=here.catalogue.offers[key].title,
        name=info.name,
        blocks=len(adapter_of(model).blocks(model)),
        sites=sites,
        plan=plan,
        method=method_of(model),
        first_method=first_method,
        input=[info.clip_rule.frames, *info.clip_rule.size],
        classes=len(info.id2label),
        notes=list(info.notes),
    )


@routes.get("/models/{key}/plan", responses=schemas.fails(404, 422))
def plan(here: Here, key: str, text: str, method: str | None = None) -> schemas.PlanEntry:
    """Read a plan and put it into the model, without running it."""
    parsed = SelectionPlan.parse(text[:500])
    model = here.catalogue.with_plan(key, parsed, method=method)
    ratios = [site.keep if isinstance(site.keep, float) else None for site in parsed]
    sites: list[Any] = [
        {"text": str(site), "kind": site.kind, "block": site.block, "ratio": ratio}
        for site, ratio in zip(parsed, ratios, strict=True)
    ]
    return schemas.PlanEntry(plan=str(parsed), sites=sites, notes=remarks_of(model))


@cache
def sample_picture(number: int) -> bytes:
    """Draw the middle frame of a sample as a small JPEG."""
    frames, buffer = open_sample(number).frames, io.BytesIO()
    middle = frames[len(frames) // 2].permute(1, 2, 0).contiguous().numpy()
    Image.fromarray(middle).resize((96, 96)).save(buffer, "JPEG", quality=85)
    return buffer.getvalue()


@routes.get("/samples/{number}.jpg", response_class=Response, responses=schemas.fails(422))
def picture(number: int) -> Response:
    """Give one frame of a sample."""
    return Response(sample_picture(number), media_type="image/jpeg")


BODY = {"content": {"video/*": {"schema": {"type": "string", "format": "binary"}}}}
TAKES_BODY: dict[str, Any] = {"status_code": 201, "openapi_extra": {"requestBody": BODY}}


@routes.post("/videos", responses=schemas.fails(408, 413, 422, 429), **TAKES_BODY)
async def upload(request: Request, here: Here, name: str = "video") -> schemas.VideoEntry:
    """Take the bytes of a video file; `name` is for messages and titles."""
    last = PurePosixPath(name.replace("\\", "/")).name  # no folders, no control characters
    name = "".join(letter for letter in last if letter.isprintable())[-120:] or "video"
    size = request.headers.get("content-length", "")
    announced = int(size) if size.isdecimal() else None
    upload = await here.store.receive(request.stream(), name=name, size=announced)
    source = upload.source
    return schemas.VideoEntry(
        video=upload.id,
        name=upload.name,
        seconds=round(float(source.times[-1]) + 1 / source.fps, 3),
        frames=source.num_frames,
        fps=round(source.fps, 3),
        width=source.size[1],
        height=source.size[0],
    )


@routes.delete("/videos/{video}", status_code=204, responses=schemas.fails(404))
def remove(video: str, here: Here) -> Response:
    """Delete an upload."""
    here.store.remove(video)
    return Response(status_code=204)


REPORT_HEADERS = {  # its script and style are inside it
    "Content-Disposition": 'attachment; filename="kept.html"',
    "Content-Security-Policy": (
        "default-src 'none'; script-src 'unsafe-inline'; style-src 'unsafe-inline'; img-src data:"
    ),
}


@routes.post("/jobs", status_code=202, responses=schemas.fails(404, 422, 429))
def begin_job(asked: schemas.JobRequest, here: Here) -> schemas.JobEntry:
    """Put a job in line: one clip, dense and under the plan."""
    if asked.plan is not None:
        SelectionPlan.parse(asked.plan)  # a typing mistake is answered at once
    if asked.model is not None and asked.model not in here.catalogue.offers:
        raise ValueError(f"no model {asked.model!r}; there are {', '.join(here.catalogue.offers)}")
    if (match := SAMPLE.fullmatch(asked.video)) is None:
        here.store.find(asked.video)
    elif int(match[1]) >= NUM_SAMPLES:
        raise Missing(f"samples are numbered 0 to {NUM_SAMPLES - 1}, got {asked.video!r}")
    job = here.queue.add(lambda tell: explain_clip(asked, here, tell), steps=STEPS)
    return describe_job(job, has_pictures=False)


@routes.get("/jobs/{job}", responses=schemas.fails(404))
def look_at_job(job: str, here: Here, pictures: bool = True) -> schemas.JobEntry:
    """Say how far a job is; with its result once it is done."""
    return describe_job(here.queue.get(job), has_pictures=pictures)


@routes.delete("/jobs/{job}", responses=schemas.fails(404))
def cancel_job(job: str, here: Here) -> schemas.JobEntry:
    """Cancel a job; a running one leaves at its next step."""
    return describe_job(here.queue.cancel(job), has_pictures=False)


@routes.get("/jobs/{job}/report.html", response_class=HTMLResponse, responses=schemas.fails(404))
def report(job: str, here: Here) -> HTMLResponse:
    """Give the result as one self-contained page to keep."""
    result = here.queue.get(job).result
    if result is None:
        raise Missing(f"job {job!r} has no result")
    return HTMLResponse(build_page(result), headers=REPORT_HEADERS)


@routes.post("/live", responses=schemas.fails(404, 422, 429))
def look_at_camera(asked: schemas.LiveRequest, here: Here) -> schemas.LiveEntry:
    """Answer a camera's last seconds; one clip at a time, whoever asks."""
    if not here.turn.acquire(blocking=False):
        raise QueueFull("another clip is being answered: send the next one a little later")
    try:
        model = choose_model(asked, here.catalogue)
        if here.watcher is None or here.watcher.model is not model:
            here.watcher = Watcher(model)
        found = here.watcher.look(read_pictures(asked.frames), fps=asked.fps, name="camera")
        return schemas.LiveEntry.model_validate(found.to_dict(top=3))
    finally:
        here.turn.release()


def read_pictures(addresses: list[str]) -> Tensor:
    """Read JPEG pictures of one size from data addresses: (t, 3, h, w) uint8."""
    pictures = []
    for address in addresses:
        try:
            data = base64.b64decode(address.partition(",")[2], validate=True)
            with Image.open(io.BytesIO(data), formats=["JPEG"]) as picture:
                if picture.width * picture.height > 2**20:
                    raise ValueError(f"is {picture.width} × {picture.height}, more than 2²⁰ pixels")
                check_frame_size("it", picture.height, picture.width)
                pictures.append(torch.from_numpy(np.array(picture.convert("RGB"))))
        except Exception as error:  # Pillow's readers raise whatever they trip over
            raise ValueError(f"frame {len(pictures)} is no JPEG of a camera: {error}") from None
    if len({picture.shape for picture in pictures}) > 1:
        raise ValueError("frames must all have one size")
    return torch.stack(pictures).permute(0, 3, 1, 2)


def describe_job(job: Job, *, has_pictures: bool) -> schemas.JobEntry:
    """Say how far a job is, and what came out."""
    entry = schemas.JobEntry.model_validate(job, from_attributes=True)
    if entry.result is not None and not has_pictures:
        entry.result.clip.frames = []
        for site in (site for plan in entry.result.plans for site in plan.sites):
            site.heat = site.gone = None
    return entry


STATUS: dict[type[Exception], int] = {  # the first that fits; nobody reads the 400
    **{Missing: 404, TooLarge: 413, ValueError: 422, RequestValidationError: 422},
    **{QueueFull: 429, ClientDisconnect: 400, OSError: 500},
}
SWEEP = 30  # seconds between looks for idle uploads


def build_app(
    catalogue: Catalogue, *, limits: Limits | None = None, names: Collection[str] | None = LOOPBACK
) -> FastAPI:
    """Build the application; `names` are those that it may be asked under, None for any."""
    limits = limits or Limits()
    # FastAPI's own documentation pages load scripts from elsewhere: they are off.
    app = FastAPI(
        title="tokenselect",
        description="Which frames and regions of a video a model keeps, and what that saves.",
        openapi_url="/api/schema",
        docs_url=None,
        redoc_url=None,
        lifespan=lifespan,
        exception_handlers=dict.fromkeys(STATUS, say),
    )
    queue = JobQueue(max_waiting=limits.max_waiting, max_results=limits.max_results)
    app.state.service = Service(catalogue, limits, UploadStore(limits), queue)
    app.add_middleware(Guard, limits=limits, names=names)
    text = (resources.files(__package__) / "index.html").read_text(encoding="utf-8")
    page = text.replace("{{sections}}", read_asset("sections.html").rstrip())  # of the report
    app.add_api_route("/", lambda: HTMLResponse(page), include_in_schema=False)
    folders = ("tokenselect.web", "static"), ("tokenselect.visualization", "page")
    app.mount("/static", StaticFiles(packages=[*folders]))
    app.include_router(routes)
    return app


@asynccontextmanager
async def lifespan(app: FastAPI) -> AsyncIterator[None]:
    """Delete idle uploads while the application runs, and at its end cancel and delete all."""
    here: Service = app.state.service

    async def sweep() -> None:
        while True:
            await asyncio.sleep(SWEEP)
            await asyncio.to_thread(here.store.remove_idle)

    sweeper = asyncio.create_task(sweep())
    try:
        yield
    finally:
        sweeper.cancel()
        with suppress(asyncio.CancelledError):
            await sweeper
        await asyncio.to_thread(here.queue.close)
        here.store.close()


async def say(_: Request, error: Exception) -> Response:
    """Answer what went wrong with one sentence."""
    status, detail = next(s for kind, s in STATUS.items() if isinstance(error, kind)), str(error)
    if isinstance(error, RequestValidationError):
        places = ((".".join(map(str, fault["loc"][1:])), fault["msg"]) for fault in error.errors())
        detail = "; ".join([f"{place[:80] or 'body'}: {fault}" for place, fault in places][:10])
    return JSONResponse({"detail": detail}, status_code=status)
