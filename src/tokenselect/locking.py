"""One run per place: a lock that says who holds it, and that ends with its process."""

import os
import socket
from collections.abc import Iterator
from contextlib import contextmanager
from datetime import datetime
from pathlib import Path

from filelock import FileLock, Timeout


class InUseError(OSError):
    """Another process works on the same file or folder."""


@contextmanager
def holding(place: Path) -> Iterator[None]:
    """Keep other processes from `place`, a file or folder that this one is about to write.

    The system frees the lock when the process ends, however it ends, so none is ever stale.
    """
    place.parent.mkdir(parents=True, exist_ok=True)
    lock, owner = (place.with_name(f".{place.name}.{end}") for end in ("lock", "owner"))
    try:
        held = FileLock(lock).acquire(timeout=0)
        while not lock.exists():  # its last holder has just removed it: another could lock it anew
            held.lock.release()
            held = FileLock(lock).acquire(timeout=0)
    except Timeout:
        who = owner.read_text() if owner.exists() else "another process"
        raise InUseError(f"{place} is being written by {who}: wait for it, or stop it") from None
    with held:
        since = datetime.now().strftime("%Y-%m-%d %H:%M:%S")
        try:
            _note(owner, f"process {os.getpid()} on {socket.gethostname()} since {since}")
            yield
        finally:
            owner.unlink(missing_ok=True)
            lock.unlink(missing_ok=True)


def _note(owner: Path, who: str) -> None:
    """Write who holds a place; on a full disk, name the file."""
    try:
        owner.write_text(who)
    except OSError as error:
        raise OSError(f"{owner} cannot be written: {error.strerror or error}") from error
