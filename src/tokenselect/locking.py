"""One run per place, and files that are whole or not there."""

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


@contextmanager
def writing(path: str | os.PathLike[str]) -> Iterator[Path]:
    """Give a file to write, which takes the name of `path` once it is whole.

    An error names `path`, and leaves nothing behind; what was there before stays. Devices, such as
    /dev/stdout, are written as they are.
    """
    is_device = os.path.exists(path) and not os.path.isfile(path)
    target = Path(path) if is_device else Path(path).resolve()  # behind links
    unfinished = target if is_device else target.with_name(f".{os.getpid()}.{target.name}")
    try:
        yield unfinished
        if not is_device:
            os.replace(unfinished, target)
    except OSError as error:
        raise OSError(f"{path} could not be written: {error.strerror or error}") from error
    finally:
        if not is_device:
            unfinished.unlink(missing_ok=True)


def write_whole(path: str | os.PathLike[str], text: str) -> None:
    """Write a text file that is whole or not there."""
    with writing(path) as unfinished:
        unfinished.write_text(text, encoding="utf-8")


def _note(owner: Path, who: str) -> None:
    """Write who holds a place; on a full disk, name the file."""
    try:
        owner.write_text(who)
    except OSError as error:
        raise OSError(f"{owner} cannot be written: {error.strerror or error}") from error
