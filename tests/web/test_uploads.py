import asyncio
import itertools
from dataclasses import replace

import pytest
from starlette.exceptions import HTTPException

from tests.web.tiny import TINY, make_clip
from tokenselect.web.guard import Limits, Missing, bound_body
from tokenselect.web.uploads import UploadStore


@pytest.fixture
def store():
    store = UploadStore(TINY)
    yield store
    store.close()


def test_a_video_in_use_is_deleted_when_it_is_given_back(store):
    upload = store.add(make_clip(store.folder / "a.mp4"), name="a.mp4")
    with store.borrow(upload.id) as borrowed:
        store.remove(upload.id)
        assert borrowed.source.read([0, 15]).shape == (2, 3, 96, 96)
        assert upload.path.exists()
    assert not upload.path.exists()
    with pytest.raises(Missing), store.borrow(upload.id):
        pass


def test_idle_videos_are_deleted_but_not_those_in_use(store):
    idle, used = (store.add(make_clip(store.folder / f"{n}.mp4"), name=n) for n in "ab")
    idle.used -= 2 * TINY.max_idle
    used.used -= 2 * TINY.max_idle
    with store.borrow(used.id):
        store.remove_idle()
        assert not idle.path.exists() and used.path.exists()


def test_limits_must_leave_something():
    with pytest.raises(ValueError, match="max_mb must be above 0, got 0"):
        Limits(max_mb=0)


@pytest.mark.parametrize(
    ("pause", "part", "told"),
    [
        (9.0, b"", "nothing arrived for 0.2 seconds"),
        (0.01, b"x", "less than 10 KB a second arrived"),
        (0.01, bytes(4096), None),
    ],
)
def test_a_body_that_stalls_or_drips_is_refused_and_a_slow_one_is_taken(pause, part, told):
    limits = replace(TINY, max_stall=0.2, min_rate=10 * 1024)

    async def receive():
        await asyncio.sleep(pause)
        return {"type": "http.request", "body": part, "more_body": True}

    async def take_all():
        receive_bounded = bound_body(receive, max_bytes=None, limits=limits)
        for count in itertools.count():
            if count == 60:  # a third of a second at least, more than the stall
                return
            await receive_bounded()

    if told is None:
        return asyncio.run(take_all())
    with pytest.raises(HTTPException, match=told) as refused:
        asyncio.run(take_all())
    assert refused.value.status_code == 408
