"""A server small enough for tests: the mini model, a clip of our own, short limits."""

import time
from functools import partial

from tokenselect.checkpoints import load_model
from tokenselect.data import write_video
from tokenselect.data.sources import FPS, open_sample
from tokenselect.web.app import build_app
from tokenselect.web.catalogue import Catalogue, Offer
from tokenselect.web.guard import Limits

ORIGIN = "http://localhost"
TINY = Limits(max_mb=1, max_seconds=5, max_videos=2, max_waiting=1, max_results=3)


def make_app(**settings):
    settings.setdefault("limits", TINY)
    offers = {"mvit_mini": Offer("the mini model", partial(load_model, "mvit_mini"))}
    return build_app(Catalogue(offers), **settings)


def make_clip(path, *, fps=FPS, number=0):
    """Write a sample as a small file: 16 frames of 96 × 96."""
    write_video(path, open_sample(number).frames[:, :, ::2, ::2].contiguous(), fps=fps)
    return path


def finish(client, job):
    """Wait for a job to end."""
    end = time.monotonic() + 60
    while time.monotonic() < end:
        told = client.get(f"/api/jobs/{job}").json()
        if told["state"] not in ("waiting", "running"):
            return told
        time.sleep(0.02)
    raise TimeoutError(f"job {job} does not end")
