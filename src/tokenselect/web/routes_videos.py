"""Uploads: a raw body in, an id out; deleted on request, when idle, and at the end."""

from __future__ import annotations

import asyncio
from pathlib import PurePosixPath

from fastapi import APIRouter, Request
from fastapi.responses import Response

from tokenselect.web.schemas import VideoEntry, fails
from tokenselect.web.uploads import Upload, UploadStore

BODY = {"content": {"video/*": {"schema": {"type": "string", "format": "binary"}}}}


def video_routes(store: UploadStore) -> APIRouter:
    """Make the routes of uploads."""
    routes = APIRouter(prefix="/api/videos", tags=["videos"])

    @routes.post(
        "",
        status_code=201,
        responses=fails(413, 422),
        openapi_extra={"requestBody": BODY},
    )
    async def upload(request: Request, name: str = "video") -> VideoEntry:
        """Take the bytes of a video file; `name` is for messages and titles."""
        name = short_name(name)
        size = request.headers.get("content-length")
        path = await store.receive(
            request.stream(), name=name, size=int(size) if size and size.isdigit() else None
        )
        return describe(await asyncio.to_thread(store.add, path, name=name))

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


def describe(upload: Upload) -> VideoEntry:
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
