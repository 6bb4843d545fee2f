"""Uploaded videos: private files that are gone as soon as nobody needs them."""

import asyncio
import secrets
import threading
import time
from collections.abc import AsyncIterator, Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path
from tempfile import TemporaryDirectory

from tokenselect.data import FrameSource
from tokenselect.web.guard import Limits, Missing, QueueFull, TooLarge, open_upload


@dataclass
class Upload:
    """One video in the store; `users` are those who read it now."""

    id: str
    name: str
    path: Path
    source: FrameSource
    used: float = field(default_factory=time.monotonic)
    users: int = 0
    lock: threading.Lock = field(default_factory=threading.Lock)  # a decoder serves one at a time


class UploadStore:
    """Receives files into a folder that only this user can read, and deletes them."""

    def __init__(self, limits: Limits) -> None:
        self.limits = limits
        self._folder = TemporaryDirectory(prefix="tokenselect-serve-", ignore_cleanup_errors=True)
        self.folder = Path(self._folder.name)
        self._uploads: dict[str, Upload] = {}
        self._unfinished = 0  # changed by the event loop alone
        self._lock = threading.Lock()

    async def receive(self, parts: AsyncIterator[bytes], *, name: str, size: int | None) -> Upload:
        """Write the parts of a body to a file and open it; what grows too large is deleted at once.

        The client announced `size`, and `name` is the file's there.
        """
        message = f"{name} is larger than {self.limits.max_mb:g} MB, the limit of this server"
        if size is not None and size > self.limits.max_bytes:
            raise TooLarge(message)
        if self._unfinished >= self.limits.max_unfinished:
            raise QueueFull(f"{self._unfinished} uploads are under way: try again later")
        path, done = self.folder / f"{secrets.token_hex(8)}{Path(name).suffix[:8]}", 0
        self._unfinished += 1
        try:
            with path.open("wb") as file:
                async for part in parts:
                    done += len(part)
                    if done > self.limits.max_bytes:
                        raise TooLarge(message)
                    file.write(part)
            return await asyncio.to_thread(self.add, path, name=name)
        except BaseException:  # also a client that hangs up
            path.unlink(missing_ok=True)
            raise
        finally:
            self._unfinished -= 1

    def add(self, path: Path, *, name: str) -> Upload:
        """Open a received file, if it can be read and is not too long."""
        source = open_upload(path, name=name, limits=self.limits)
        upload = Upload(secrets.token_urlsafe(12), name, path, source)
        with self._lock:
            self._uploads[upload.id] = upload
            idle = sorted(self._uploads.values(), key=lambda one: one.used)
            crowd = idle[: max(0, len(idle) - self.limits.max_videos)]
        for old in crowd:
            self.remove(old.id)
        return upload

    @contextmanager
    def borrow(self, key: str) -> Iterator[Upload]:
        """Use a video alone; it is not closed before it is given back."""
        with self._lock:
            upload = self.find(key)
            upload.users += 1
        try:
            with upload.lock:
                yield upload
        finally:
            with self._lock:
                upload.users -= 1
                upload.used = time.monotonic()
            self._close_if_done(upload)

    def find(self, key: str) -> Upload:
        """Find a video."""
        if (upload := self._uploads.get(key)) is None:
            raise Missing(f"no video {key!r}: it was deleted or never existed")
        return upload

    def remove(self, key: str) -> None:
        """Forget a video and delete its file, at the latest when its last user is done."""
        with self._lock:
            upload = self.find(key)
            del self._uploads[key]
        self._close_if_done(upload)

    def remove_idle(self) -> None:
        """Delete what nobody has used for a while."""
        oldest = time.monotonic() - self.limits.max_idle
        with self._lock:
            idle = [one.id for one in self._uploads.values() if one.used < oldest and not one.users]
        for key in idle:
            self.remove(key)

    def close(self) -> None:
        """Delete everything."""
        for key in list(self._uploads):
            self.remove(key)
        self._folder.cleanup()

    def _close_if_done(self, upload: Upload) -> None:
        if upload.id not in self._uploads and not upload.users:
            upload.source.close()
            upload.path.unlink(missing_ok=True)
