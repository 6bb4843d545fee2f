"""The one exception of reading videos: which file, and what is wrong with it."""

from __future__ import annotations

from os import PathLike, fspath


class VideoError(ValueError):
    """A video that cannot be read; a data set replaces it, a command prints it.

    Attributes:
        path: the file or folder.
        reason: what is wrong with it, as the end of a sentence that starts with the path.
    """

    def __init__(self, path: str | PathLike[str], reason: str):
        super().__init__(fspath(path), reason)  # plain arguments, so that workers can pickle it
        self.path = fspath(path)
        self.reason = reason

    def __str__(self) -> str:
        return f"{self.path} {self.reason}"
