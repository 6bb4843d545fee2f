"""What the server lets in: who may ask, how much, and only plain video files."""

import asyncio
import time
from collections.abc import Collection
from dataclasses import dataclass
from pathlib import Path
from urllib.parse import urlsplit

import av
from starlette.datastructures import Headers, MutableHeaders
from starlette.exceptions import HTTPException
from starlette.responses import JSONResponse
from starlette.types import ASGIApp, Message, Receive, Scope, Send

from tokenselect.data import FrameSource, VideoError, open_video


class Missing(LookupError):
    """Something that was deleted, or never there."""


class TooLarge(ValueError):
    """A file above the size limit."""


class QueueFull(RuntimeError):
    """Too many jobs wait already, or too many uploads are under way."""


MAX_JSON = 2**16  # bytes of a body that is no upload; the longest job has a tenth of that
MAX_BODY = {"/api/videos": None, "/api/live": 2**22}  # of bodies that are pictures


@dataclass(frozen=True, kw_only=True)
class Limits:
    """Bounds on what a client may ask for."""

    max_mb: float = 200.0  # of an uploaded file, in units of 2²⁰ bytes
    max_seconds: float = 300.0  # of an uploaded video
    max_pixels: int = 40_000_000  # of one frame; 8K has 33 million
    max_videos: int = 4  # uploads held at once; the one that lay idle longest makes room
    max_unfinished: int = 4  # uploads under way at once
    max_stall: float = 30.0  # seconds without a byte after which a request that sends is dropped
    min_rate: float = 2**15  # bytes per second below which such a request is dropped, too
    max_idle: float = 900.0  # seconds after which an upload that nobody uses is deleted
    max_waiting: int = 4  # jobs in the queue beside the one that runs
    max_results: int = 8  # finished jobs that are remembered

    def __post_init__(self) -> None:
        for name in ("max_mb", "max_seconds"):
            if getattr(self, name) <= 0:
                raise ValueError(f"{name} must be above 0, got {getattr(self, name):g}")

    @property
    def max_bytes(self) -> int:
        """The size limit in bytes."""
        return int(self.max_mb * 2**20)


LOOPBACK = ("localhost", "127.0.0.1", "::1")
HEADERS = {
    # The browser itself refuses whatever would come from elsewhere or go there.
    "Content-Security-Policy": (
        "default-src 'none'; script-src 'self'; style-src 'self'; img-src 'self' data:; "
        "connect-src 'self'; base-uri 'none'; form-action 'none'; frame-ancestors 'none'"
    ),
    "X-Content-Type-Options": "nosniff",
    "Referrer-Policy": "no-referrer",
    "Cross-Origin-Resource-Policy": "same-origin",
    "Cache-Control": "no-store",
}


class Guard:
    """Refuses names that are not the server's own, requests of other sites, and endless bodies.

    A foreign site can point its own name at 127.0.0.1 (DNS rebinding): its requests then carry
    that name as their Host. It can also send a form here without reading the answer: such a
    request carries the site as its Origin. The size of an upload is for `UploadStore` to check.
    `names` are allowed in Host, without port; None allows any.
    """

    def __init__(self, app: ASGIApp, *, limits: Limits, names: Collection[str] | None) -> None:
        self.app, self.limits, self.names = app, limits, names

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Pass a request on, or refuse it."""
        if scope["type"] != "http":
            return await self.app(scope, receive, send)

        async def send_guarded(message: Message) -> None:
            if message["type"] == "http.response.start":
                headers = MutableHeaders(scope=message)
                for name, value in HEADERS.items():
                    headers.setdefault(name, value)
            await send(message)

        if refusal := self.find_fault(Headers(scope=scope)):
            answer = JSONResponse({"detail": refusal[1]}, status_code=refusal[0])
            return await answer(scope, receive, send_guarded)
        max_bytes = MAX_BODY.get(scope["path"], MAX_JSON)
        bounded = bound_body(receive, max_bytes=max_bytes, limits=self.limits)
        await self.app(scope, bounded, send_guarded)

    def find_fault(self, headers: Headers) -> tuple[int, str] | None:
        """Give the status and the reason of a refusal, or None."""
        host, origin = headers.get("host", ""), headers.get("origin")
        try:
            name = urlsplit(f"//{host}").hostname or ""
            sender = host if origin is None else urlsplit(origin).netloc
        except ValueError as error:
            return 400, f"the Host or Origin of the request cannot be read: {error}"
        if self.names is not None and name not in self.names:
            return 403, f"this server answers to {', '.join(self.names)} only, not to {name!r}"
        return None if sender == host else (403, f"requests from {origin} are refused")


def bound_body(receive: Receive, *, max_bytes: int | None, limits: Limits) -> Receive:
    """Refuse a body of more than `max_bytes`, one that stalls, and one that only drips."""
    taken, waited, is_complete = 0, 0.0, False
    stall, rate = limits.max_stall, limits.min_rate

    async def receive_bounded() -> Message:
        nonlocal taken, waited, is_complete
        if is_complete:  # what comes next is that the client hangs up, whenever it does
            return await receive()
        start, left = time.monotonic(), stall + taken / rate - waited
        try:
            message = await asyncio.wait_for(receive(), min(stall, left))
        except TimeoutError:
            slow = f"less than {rate / 1024:g} KB a second" if left < stall else "nothing"
            raise HTTPException(408, f"{slow} arrived for {stall:g} seconds") from None
        waited += time.monotonic() - start
        taken += len(message.get("body", b""))
        is_complete = not message.get("more_body", False)
        if max_bytes is not None and taken > max_bytes:
            raise HTTPException(413, f"the body is larger than {max_bytes // 1024} KB")
        return message

    return receive_bounded


# Playlists and the like name other files and addresses; none of these does.
CONTAINERS = (
    "mov,mp4,m4a,3gp,3g2,mj2,matroska,webm,avi,mpegts,mpeg,mpegvideo,m4v,h264,hevc,av1,ivf,obu,"
    "asf,flv,ogg,gif,mxf,apng"
)
SAFE = {"format_whitelist": CONTAINERS, "protocol_whitelist": "file"}


def open_upload(path: Path, *, name: str, limits: Limits) -> FrameSource:
    """Open an uploaded video; what is wrong is said with the name that the user knows."""
    source = None
    try:
        check_container(path, name=name, limits=limits)
        source = open_video(path)
        check_seconds(float(source.times[-1]) + 1 / source.fps, name=name, limits=limits)
        source.read([0])  # a file whose pictures are damaged is refused here, not later
    except VideoError as error:
        if source is not None:
            source.close()
        raise VideoError(name, error.reason) from error
    return source


def check_container(path: Path, *, name: str, limits: Limits) -> None:
    """Look at the header alone, with every demuxer shut out that opens other files."""
    if path.stat().st_size == 0:
        raise VideoError(name, "is empty (0 bytes)")
    try:
        with av.open(str(path), options=SAFE, metadata_errors="ignore") as container:
            if not container.streams.video:
                raise VideoError(name, "has no video stream")
            for stream in container.streams.video:
                if stream.codec_context is None:  # an unknown codec: `open_video` says so
                    continue
                if (pixels := stream.width * stream.height) > limits.max_pixels:
                    has = f"has frames of {stream.width} × {stream.height}: {pixels / 1e6:.0f} "
                    most = f"million pixels, the limit is {limits.max_pixels / 1e6:.0f}"
                    raise VideoError(name, has + most)
            if container.duration:
                check_seconds(container.duration / av.time_base, name=name, limits=limits)
    except (av.error.FFmpegError, OSError) as error:  # in words of someone who dropped a file
        reason = str(getattr(error, "strerror", None) or error)
        if isinstance(error, av.error.ArgumentError):
            reason = "it must be mp4, mov, mkv, webm, avi, mpeg, ts, wmv, flv, ogg or gif"
        elif isinstance(error, av.error.InvalidDataError):
            reason = "it is damaged, or not a video"
        raise VideoError(name, f"cannot be read as a video: {reason}") from error


def check_seconds(seconds: float, *, name: str, limits: Limits) -> None:
    """Refuse a video that is too long."""
    if seconds > limits.max_seconds + 0.05:  # rounding of time stamps
        most = f"the limit of this server is {limits.max_seconds:g}"
        raise VideoError(name, f"is {seconds:.1f} seconds long, {most}")
