"""What the server takes: how large, how long, how many."""

from __future__ import annotations

from dataclasses import dataclass

MEGABYTE = 2**20


@dataclass(frozen=True, kw_only=True)
class Limits:
    """Bounds on what a client may ask for.

    Attributes:
        max_mb: of an uploaded file, in units of 2²⁰ bytes.
        max_seconds: of an uploaded video.
        max_pixels: of one frame; 8K has 33 million.
        max_videos: uploads held at once; the one that lay idle longest makes room.
        max_idle: seconds after which an upload that nobody uses is deleted.
        max_waiting: jobs in the queue beside the one that runs.
        max_results: finished jobs that are remembered.
    """

    max_mb: float = 200.0
    max_seconds: float = 300.0
    max_pixels: int = 40_000_000
    max_videos: int = 4
    max_idle: float = 900.0
    max_waiting: int = 4
    max_results: int = 8

    def __post_init__(self) -> None:
        for name in ("max_mb", "max_seconds"):
            if getattr(self, name) <= 0:
                raise ValueError(f"{name} must be above 0, got {getattr(self, name):g}")

    @property
    def max_bytes(self) -> int:
        """The size limit in bytes."""
        return int(self.max_mb * MEGABYTE)
