"""A camera's last seconds, answered again and again while it runs.

A thread reads the camera and keeps the newest frames only, so that an answer is never about what
is long past, however slow the model is. Frames that no clip has shown are counted.
"""

import threading
import time
from collections import deque
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Self

import av
import torch
from torch import Tensor, nn

from tokenselect.checkpoints import info_of, with_plan
from tokenselect.data import VideoError
from tokenselect.data.clips import ClipRule
from tokenselect.data.frame_source import FramesInMemory, check_frame_size
from tokenselect.data.sources import camera_address
from tokenselect.inference.explain import explain_video
from tokenselect.measure.cost import Layer, be_silent, count_macs
from tokenselect.visualization.explanation import Explanation, PlanStory
from tokenselect.visualization.report import boxes_of

SECONDS = 3.0  # of a clip that is to show a whole video
MOST_FRAMES = 256  # that are kept, at most
MOST_WAIT = 10.0  # seconds for the next frame of a file, whose times may be damaged
SHORT_SIDE = 288  # of the frames that are kept: enough for every model of ours


@dataclass(frozen=True)
class Look:
    """One answer about a camera's last seconds."""

    explanation: Explanation  # of the clip, under one plan
    seconds: float  # that it took
    gmacs_dense: float  # of the same clip without selection
    first: int = 0  # number of the first frame that it looked at, of those it was given

    @property
    def plan(self) -> PlanStory:
        """What the model made of the clip."""
        return self.explanation.plans[0]

    @property
    def saved(self) -> float:
        """Share of the multiply-adds that selection saves."""
        return 1 - self.plan.gmacs / self.gmacs_dense

    def to_dict(self, *, top: int) -> dict[str, Any]:
        """Give the answer as JSON values."""
        clip, names = self.explanation.clip, self.explanation.class_names
        best = self.plan.top(top)
        return {
            "top": [{"label": names[n], "probability": probability} for n, probability in best],
            "plan": self.plan.plan,
            "frames": [self.first + number for number in clip.numbers],
            "kept": boxes_of(clip, self.explanation.kept(self.plan)),
            "milliseconds": round(1e3 * self.seconds, 1),
            "saved": round(self.saved, 4),
            "notes": self.explanation.notes,
        }


class Watcher:
    """Answers clip after clip with one model, whose costs are counted once."""

    def __init__(self, model: nn.Module) -> None:
        self.model, self.rule = model, info_of(model).clip_rule
        self.layers = [Layer("all", count_macs(model, *self.rule.shape).gmacs)]
        self.gmacs_dense = count_macs(with_plan(model, "dense"), *self.rule.shape).gmacs

    def look(self, frames: Tensor, *, fps: float, name: str) -> Look:
        """Answer the newest (t, 3, h, w) uint8 frames, as many as a clip spans."""
        start = time.perf_counter()
        first = max(0, len(frames) - span_of(self.rule, fps))
        source = FramesInMemory(frames[first:], fps=fps, name=name)
        explanation = explain_video(
            [self.model], source, name=name, repeats=0, count=lambda *_: self.layers, tell=be_silent
        )
        return Look(explanation, time.perf_counter() - start, self.gmacs_dense, first)


def span_of(rule: ClipRule, fps: float) -> int:
    """Count the newest frames that a clip is taken from."""
    if rule.stride is not None:
        return (rule.frames - 1) * rule.stride + 1
    return max(rule.frames, round(SECONDS * fps))


class Stream:
    """The newest frames of a camera, or of a file that is played like one.

    Used as a context, in which a thread reads. Of the frames that `arrived` so far, those `skipped`
    gave way to newer ones before any clip showed them.
    """

    def __init__(self, source: str) -> None:
        """Open a camera by its number, or a file."""
        is_camera = source.isdecimal() and not Path(source).exists()
        place, system = camera_address(int(source)) if is_camera else (source, None)
        self.name = f"camera {source}" if is_camera else source
        try:
            self.container = av.open(place, format=system, metadata_errors="ignore")
            stream = self.container.streams.video[0]
        except (av.error.FFmpegError, OSError, IndexError) as error:
            raise VideoError(self.name, f"cannot be opened: {error} ({place})") from error
        if stream.codec_context is None:
            raise VideoError(self.name, "has a video stream that no decoder knows")
        check_frame_size(self.name, stream.height, stream.width)
        self.fps, self.is_camera = float(stream.average_rate or 30), is_camera
        self.arrived = self.skipped = self._seen = 0
        self._frames: deque[Tensor] = deque(maxlen=MOST_FRAMES)
        self._changed, self._is_over = threading.Condition(), False
        self._thread = threading.Thread(target=self._read, name="tokenselect-live", daemon=True)

    def __enter__(self) -> Self:
        self._thread.start()
        return self

    def __exit__(self, *error: object) -> None:
        with self._changed:
            self._is_over = True
            self._changed.notify_all()
        self._thread.join(timeout=5)
        self.container.close()

    def take(self, *, span: int) -> Tensor | None:
        """Wait for a frame that was not shown yet; give the newest `span`, or None at the end."""
        with self._changed:
            self._changed.wait_for(lambda: self.arrived > self._seen or self._is_over)
            if self.arrived == 0:
                raise VideoError(self.name, "gives no pictures")
            if self.arrived == self._seen:
                return None
            frames = list(self._frames)[-span:]
            self.skipped += max(0, self.arrived - self._seen - len(frames))
            self._seen = self.arrived
        return torch.stack(frames)

    def _read(self) -> None:
        start = time.monotonic()
        try:
            for frame in self.container.decode(video=0):
                late = time.monotonic() - start - float(frame.time or self.arrived / self.fps)
                with self._changed:
                    if late < 0 and not self.is_camera:  # a file waits for its time
                        self._changed.wait_for(lambda: self._is_over, min(-late, MOST_WAIT))
                    if self._is_over:
                        return
                    self._frames.append(shrink_frame(frame, like=self._frames))
                    self.arrived += 1
                    self._changed.notify_all()
        except (av.error.FFmpegError, VideoError):
            pass  # a camera that was unplugged, a file that is cut short or grows: the end
        finally:
            with self._changed:
                self._is_over = True
                self._changed.notify_all()


def shrink_frame(frame: av.VideoFrame, like: Sequence[Tensor] = ()) -> Tensor:
    """Give a (3, h, w) uint8 picture, no larger than a model needs, of the size of others."""
    check_frame_size("a frame", frame.height, frame.width)
    scale = min(1.0, SHORT_SIDE / min(frame.width, frame.height))
    width, height = round(frame.width * scale), round(frame.height * scale)
    if like:
        height, width = like[0].shape[1:]
    picture = frame.reformat(width=width, height=height, format="rgb24").to_ndarray()
    return torch.from_numpy(picture).permute(2, 0, 1)


def watch(watcher: Watcher, stream: Stream) -> Iterator[Look]:
    """Answer a stream's last seconds as often as the model can, until it ends."""
    span = span_of(watcher.rule, stream.fps)
    while (frames := stream.take(span=span)) is not None:
        yield watcher.look(frames, fps=stream.fps, name=stream.name)
