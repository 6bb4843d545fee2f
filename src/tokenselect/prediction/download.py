"""Videos from the network."""

from __future__ import annotations

import shutil
import urllib.error
import urllib.request
from collections.abc import Callable
from pathlib import Path
from urllib.parse import urlsplit

from tokenselect.data import VideoError

MAX_BYTES = 2**31
PART = 2**18  # bytes read at once


def download(
    address: str, folder: Path, *, tell: Callable[[str], object], max_bytes: int = MAX_BYTES
) -> Path:
    """Fetch a video into a folder; what goes wrong is said in one line.

    Args:
        address: http or https.
        folder: where the file goes, under the name it has there.
        tell: told how far it is.
        max_bytes: a larger file is refused.
    """
    path = folder / (Path(urlsplit(address).path).name or "video")
    try:
        with urllib.request.urlopen(address, timeout=20) as answer, path.open("wb") as file:
            size = int(answer.headers.get("Content-Length") or 0)
            done = 0
            while part := answer.read(PART):
                done += len(part)
                if max(done, size) > max_bytes:
                    raise VideoError(address, f"is larger than {max_bytes / 2**20:.0f} MB")
                file.write(part)
                of = f" of {size / 2**20:.1f}" if size else ""
                tell(f"downloading {done / 2**20:.1f}{of} MB")
    except (OSError, ValueError) as error:
        shutil.rmtree(folder, ignore_errors=True)
        if isinstance(error, VideoError):
            raise
        is_answer = isinstance(error, urllib.error.HTTPError)  # it knows its number
        reason = error if is_answer else getattr(error, "reason", None) or error
        raise VideoError(address, f"cannot be downloaded: {reason}") from error
    return path
