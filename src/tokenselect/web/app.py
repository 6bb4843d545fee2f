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
    QueueFull: 429,
    ClientDisconnect: 400,  # nobody reads it
    OSError: 500,
}
SWEEP = 30  # seconds between looks for idle uploads


def build_app(
    catalogue: Catalogue,
    *,
    limits: Limits | None = None,
    names: Collection[str] | None = LOOPBACK,
) -> FastAPI:
    """Build the application; `names` are those that it may be asked under, None for any."""
    limits = limits or Limits()
    store = UploadStore(limits)
    queue = JobQueue(max_waiting=limits.max_waiting, max_results=limits.max_results)

    @asynccontextmanager
    async def lifespan(_: FastAPI) -> AsyncIterator[None]:
        async def sweep() -> None:
            while True:
                await asyncio.sleep(SWEEP)
                await asyncio.to_thread(store.remove_idle)

        sweeper = asyncio.create_task(sweep())
        try:
            yield
        finally:
            sweeper.cancel()
            with suppress(asyncio.CancelledError):
                await sweeper
            await asyncio.to_thread(queue.close)
            store.close()

    # FastAPI's own documentation pages load scripts from elsewhere: they are off.
    app = FastAPI(
        title="tokenselect",
        description="Which frames and regions of a video a model keeps, and what that saves.",
        openapi_url="/api/schema",
        docs_url=None,
        redoc_url=None,
        lifespan=lifespan,
    )
    app.state.service = Service(catalogue, limits, store, queue)
    app.add_middleware(Guard, limits=limits, names=names)
    add_errors(app)
    add_page(app)
    app.include_router(routes)
    return app


def add_errors(app: FastAPI) -> None:
    """Answer what goes wrong with one sentence."""

    async def say(_: Request, error: Exception) -> Response:
        status = next(code for kind, code in STATUS.items() if isinstance(error, kind))
        return JSONResponse({"detail": str(error)}, status_code=status)

    async def say_invalid(_: Request, error: Exception) -> Response:
        assert isinstance(error, RequestValidationError)
        faults = [
            f"{'.'.join(map(str, fault['loc'][1:]))[:80] or 'body'}: {fault['msg']}"
            for fault in error.errors()
        ]
        return JSONResponse({"detail": "; ".join(faults[:10])}, status_code=422)

    for kind in STATUS:
        app.add_exception_handler(kind, say)
    app.add_exception_handler(RequestValidationError, say_invalid)


def add_page(app: FastAPI) -> None:
    """Serve the page, with the report's sections in their place, and its files."""
    text = (resources.files(__package__) / "index.html").read_text(encoding="utf-8")
    page = text.replace("{{sections}}", read_asset("sections.html").rstrip())

    @app.get("/", include_in_schema=False)
    def index() -> HTMLResponse:
        return HTMLResponse(page)

    folders: list[str | tuple[str, str]] = [
        ("tokenselect.web", "static"),
        ("tokenselect.visualization", "page"),
    ]
    app.mount("/static", StaticFiles(packages=folders))
