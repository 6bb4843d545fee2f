"""The application: the page, and the API that it uses."""

import asyncio
from collections.abc import AsyncIterator, Collection
from contextlib import asynccontextmanager, suppress
from importlib import resources

from fastapi import FastAPI, Request
from fastapi.exceptions import RequestValidationError
from fastapi.responses import HTMLResponse, JSONResponse, Response
from fastapi.staticfiles import StaticFiles
from starlette.requests import ClientDisconnect

from tokenselect.visualization.report import read_asset
from tokenselect.web.catalogue import Catalogue
from tokenselect.web.guard import LOOPBACK, Guard, Limits, Missing, QueueFull, TooLarge
from tokenselect.web.jobs import JobQueue
from tokenselect.web.routes import Service, routes
from tokenselect.web.uploads import UploadStore

STATUS: dict[type[Exception], int] = {  # the first that fits
    Missing: 404,
    TooLarge: 413,
    ValueError: 422,
    RequestValidationError: 422,
    QueueFull: 429,
    ClientDisconnect: 400,  # nobody reads it
    OSError: 500,
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
