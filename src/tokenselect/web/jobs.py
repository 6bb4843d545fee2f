"""Work in the background, one job at a time, with progress, a queue limit and cancelling."""

import logging
import queue
import secrets
import threading
from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Any, Literal

from tokenselect.web.guard import Missing, QueueFull

log = logging.getLogger(__name__)
JobState = Literal["waiting", "running", "done", "failed", "cancelled"]
ENDED = ("done", "failed", "cancelled")
Tell = Callable[[str], None]
Work = Callable[[Tell], dict[str, Any]]


class Cancelled(Exception):
    """Raised inside a job to leave it."""


@dataclass
class Job:
    """One piece of work."""

    work: Work  # told how to tell what it is doing; returns the result
    steps: int  # how often it tells something, for the progress
    id: str = field(default_factory=lambda: secrets.token_urlsafe(12))  # unguessable
    state: JobState = "waiting"  # what became of it
    doing: str = "waiting"  # what it is doing, in words
    told: int = 0  # steps begun
    result: dict[str, Any] | None = None  # what the work returned
    error: str | None = None  # why it failed, for the user
    is_unwanted: bool = False

    @property
    def progress(self) -> float:
        """Share of the steps that are behind it."""
        begun = min(0.99, max(0, self.told - 1) / max(1, self.steps))
        return 1.0 if self.state == "done" else begun

    def tell(self, text: str) -> None:
        """Note what is being done; leave if nobody wants it any more."""
        if self.is_unwanted:
            raise Cancelled
        self.doing, self.told = text, self.told + 1


class JobQueue:
    """One thread that works jobs off in their order.

    `max_waiting` may wait beside the one that runs, and `max_results` that ended are remembered.
    """

    def __init__(self, *, max_waiting: int, max_results: int) -> None:
        self.max_waiting, self.max_results = max_waiting, max_results
        self._jobs: dict[str, Job] = {}
        self._line: queue.SimpleQueue[Job | None] = queue.SimpleQueue()
        self._lock = threading.Lock()
        self._thread = threading.Thread(target=self._run, name="tokenselect-jobs", daemon=True)
        self._thread.start()

    def add(self, work: Work, *, steps: int) -> Job:
        """Put a job at the end of the line."""
        job = Job(work, steps)
        with self._lock:
            waiting = sum(one.state not in ENDED for one in self._jobs.values()) - 1  # one runs
            if waiting >= self.max_waiting:
                raise QueueFull(f"the queue is full ({waiting} waiting): try again, or cancel one")
            ended = [one.id for one in self._jobs.values() if one.state in ENDED]
            for key in ended[: max(0, len(ended) - self.max_results + 1)]:
                del self._jobs[key]
            self._jobs[job.id] = job
        self._line.put(job)
        return job

    def get(self, key: str) -> Job:
        """Find a job."""
        if (job := self._jobs.get(key)) is None:
            raise Missing(f"no job {key!r}: it was deleted or never existed")
        return job

    def cancel(self, key: str) -> Job:
        """Take a job out of the line, or have it leave at its next step; one that ended stays."""
        job = self.get(key)
        with self._lock:
            job.is_unwanted = True
            if job.state == "waiting":
                job.state, job.doing = "cancelled", "cancelled"
        return job

    def close(self) -> None:
        """Cancel everything and wait for the thread to leave."""
        for key in list(self._jobs):
            self.cancel(key)
        self._line.put(None)
        self._thread.join(timeout=30)

    def _run(self) -> None:
        while (job := self._line.get()) is not None:
            with self._lock:
                if job.is_unwanted:
                    continue
                job.state = "running"
            state: JobState = "failed"
            try:
                job.result, state = job.work(job.tell), "done"
            except Cancelled:
                state = "cancelled"
            except (Missing, ValueError, OSError) as error:
                job.error = str(error)
            except Exception as error:  # a mistake of ours: the page says so, the log says where
                log.exception("a job failed")
                job.error = f"unexpected {type(error).__name__}: {error}"
            job.doing = job.error or state
            job.state = state  # last: whoever sees it sees the rest
