"""The queue: one at a time, a limit, cancelling, and uploads that outlive nobody."""

import threading
from queue import SimpleQueue

import pytest

from tokenselect.data import VideoError
from tokenselect.web.guard import Missing, QueueFull
from tokenselect.web.jobs import JobQueue


@pytest.fixture
def queue():
    queue = JobQueue(max_waiting=1, max_results=2)
    yield queue
    queue.close()


class Held:
    """Work that tells a step, then waits until it is let go."""

    def __init__(self):
        self.began, self.go = threading.Event(), threading.Event()

    def __call__(self, tell):
        tell("first")
        self.began.set()
        assert self.go.wait(30)
        tell("second")
        return {"answer": 1}


def wait_until_ended(queue):
    """The line is worked off in order: a last job ends after all others."""
    done = threading.Event()
    queue.max_waiting += 1
    queue.add(lambda tell: done.set() or {}, steps=1)
    queue.max_waiting -= 1
    assert done.wait(30)


def test_a_job_waits_runs_and_ends_with_its_result(queue):
    held = Held()
    job = queue.add(held, steps=2)
    assert held.began.wait(30)
    assert (job.state, job.doing, job.progress) == ("running", "first", 0)
    held.go.set()
    wait_until_ended(queue)
    assert (job.state, job.result, job.progress) == ("done", {"answer": 1}, 1)


def test_the_line_has_an_end_and_cancelling_makes_room(queue):
    held = Held()
    running = queue.add(held, steps=2)
    assert held.began.wait(30)
    waiting = queue.add(Held(), steps=2)
    with pytest.raises(QueueFull, match=r"the queue is full \(1 waiting\)"):
        queue.add(Held(), steps=2)
    assert queue.cancel(waiting.id).state == "cancelled"
    queue.cancel(running.id)
    held.go.set()
    wait_until_ended(queue)
    assert (running.state, running.result) == ("cancelled", None)


def test_one_that_is_about_to_run_does_not_wait(queue, monkeypatch):
    monkeypatch.setattr(queue, "_line", SimpleQueue())  # which nobody works off
    held = queue.add(Held(), steps=2), queue.add(Held(), steps=2)
    assert [one.state for one in held] == ["waiting", "waiting"]
    with pytest.raises(QueueFull, match=r"the queue is full \(1 waiting\)"):
        queue.add(Held(), steps=2)
    monkeypatch.undo()


@pytest.mark.parametrize(
    ("error", "message"),
    [
        (VideoError("cat.mp4", "is damaged"), "cat.mp4 is damaged"),
        (Missing("no video"), "no video"),
        (RuntimeError("oh"), "unexpected RuntimeError: oh"),
    ],
)
def test_what_goes_wrong_is_said(queue, error, message):
    def fail(tell):
        raise error

    job = queue.add(fail, steps=1)
    wait_until_ended(queue)
    assert (job.state, job.error) == ("failed", message)


def test_old_results_are_forgotten(queue):
    first = queue.add(lambda tell: {}, steps=1)
    wait_until_ended(queue)
    wait_until_ended(queue)
    wait_until_ended(queue)
    with pytest.raises(Missing, match="it was deleted"):
        queue.get(first.id)
