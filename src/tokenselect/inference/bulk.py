"""Many videos through one model: read in workers, batched across videos, here or on a cluster."""

import os
from collections.abc import Callable, Iterable, Iterator, Sequence
from contextlib import closing
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import torch
from torch import Tensor, nn
from torch.utils.data import DataLoader, IterableDataset, get_worker_info

from tokenselect.checkpoints import info_of
from tokenselect.data import VideoError, open_video
from tokenselect.data.clips import ClipRule
from tokenselect.data.labels import fold
from tokenselect.data.synthetic import looks_synthetic
from tokenselect.extras import require
from tokenselect.inference.predict import DOUBT, Moment, Timeline, split_windows
from tokenselect.inference.rows import Row, printable
from tokenselect.measure.accuracy import Runner, score_views

TOP = 5
FILE_ERRORS = (VideoError, OSError, ValueError, RuntimeError)  # of a file, not of a program
OpenRun = Callable[[nn.Module], Runner]
BLOCK = 16  # videos that a cluster hands out at a time: what a lost worker has to do again


@dataclass(frozen=True)
class Reading:
    """How videos are read."""

    rule: ClipRule  # what the model wants
    clips: int = 1  # of each window of a video
    crops: int = 1  # of each clip
    window: float = 10.0  # seconds of a window of a long video; 0 takes any video as one
    step: float | None = None  # seconds from window to window; None for half a window
    is_synthetic: bool = False  # the model knows synthetic actions alone


@dataclass(frozen=True)
class Window:
    """One window of a video, (v, t, 3, h, w) uint8 crops, or why the video could not be read."""

    video: str
    is_last: bool
    start: float = 0.0
    end: float = 0.0
    crops: Tensor | None = None
    error: str | None = None


def read_windows(video: str, reading: Reading) -> Iterator[Window]:
    """Cut a video window by window; at an error it ends with that."""
    try:
        with closing(open_video(video)) as source:
            spans = split_windows(source, seconds=reading.window, step=reading.step)
            for span in spans:
                crops = reading.rule.read_crops(
                    source, start=span[0], stop=span[1], clips=reading.clips, crops=reading.crops
                )
                if reading.is_synthetic and not looks_synthetic(crops[0]):
                    raise VideoError(video, DOUBT)
                start, last = (float(source.times[frame]) for frame in (span[0], span[1] - 1))
                yield Window(video, span == spans[-1], start, last + 1 / source.fps, crops)
    except FILE_ERRORS as error:
        yield Window(video, True, error=str(error) or type(error).__name__)


class WindowReader(IterableDataset[Window]):
    """The windows of videos; each worker reads its share of the videos."""

    def __init__(self, videos: Sequence[str], reading: Reading) -> None:
        self.videos, self.reading = videos, reading

    def __iter__(self) -> Iterator[Window]:
        worker = get_worker_info()
        first, step = (0, 1) if worker is None else (worker.id, worker.num_workers)
        for video in self.videos[first::step]:
            yield from read_windows(video, self.reading)


@torch.inference_mode()
def answer_windows(
    model: nn.Module, windows: Iterable[Window], *, batch: int = 8, run: Runner | None = None
) -> Iterator[Row]:
    """Classify windows, several videos' in one forward pass, and give each video's row.

    Args:
        model: on the device that it shall run on, in evaluation mode.
        windows: of a video one after the other; those of several videos may alternate.
        batch: clips of one forward pass.
        run: maps clips to logits in the model's place: its file in another runtime.
    """
    rule, device = info_of(model).clip_rule, next(model.parameters()).device
    moments: dict[str, list[Moment]] = {}
    waiting: list[Window] = []

    def answer() -> Iterator[Row]:
        crops = torch.stack([window.crops for window in waiting])  # type: ignore[misc]  # (n, v, …)
        clips = rule.normalize(crops.flatten(0, 1)).unflatten(0, crops.shape[:2])
        scores = score_views(run or model, clips.to(device), views_at_once=batch).cpu()
        for window, probabilities in zip(waiting, scores, strict=True):
            moment = Moment(window.start, window.end, probabilities)
            moments.setdefault(window.video, []).append(moment)
            if window.is_last:
                yield row_of(model, window.video, moments.pop(window.video))
        waiting.clear()

    for window in windows:
        if window.crops is None:
            yield from answer() if waiting else ()
            moments.pop(window.video, None)
            yield Row(printable(window.video), error=window.error)
            continue
        waiting.append(window)
        if len(waiting) * len(window.crops) >= batch:
            yield from answer()
    yield from answer() if waiting else ()


def row_of(model: nn.Module, video: str, moments: list[Moment]) -> Row:
    """Make the row of a video of its windows' answers."""
    names = info_of(model).id2label
    whole = Timeline(moments, moments[-1].end).whole
    labels, probabilities = zip(*((names[n], round(p, 6)) for n, p in whole.top(TOP)), strict=True)
    windows = tuple(
        {
            "start": round(moment.start, 3),
            "end": round(moment.end, 3),
            "label": names[moment.top(1)[0][0]],
            "probability": round(moment.top(1)[0][1], 6),
        }
        for moment in (moments if len(moments) > 1 else ())
    )
    return Row(
        video=printable(video),
        label=labels[0],
        probability=probabilities[0],
        truth=folder_class(video, info_of(model).class_names),
        seconds=round(moments[-1].end, 3),
        labels=labels,
        probabilities=probabilities,
        timeline=windows,
    )


def folder_class(video: str, class_names: Sequence[str]) -> str | None:
    """Give the class that the video's folder is named after, or None."""
    folder = fold(printable(Path(video).parent.name))
    return next((name for name in class_names if fold(name) == folder), None)


def on_this_machine(
    model: nn.Module,
    videos: Sequence[str],
    *,
    reading: Reading,
    workers: int,
    batch: int = 8,
    open_run: OpenRun | None = None,
) -> Iterator[Row]:
    """Classify videos, in whatever order they are done.

    Args:
        model: on the device that it shall run on.
        videos: files.
        reading: how they are read.
        workers: processes that read; 0 reads in this one.
        batch: clips of one forward pass.
        open_run: gives what runs the model, where torch does not.
    """
    windows = WindowReader(videos, reading)
    workers = min(workers, len(videos))
    loader = DataLoader(windows, batch_size=None, num_workers=workers)
    yield from answer_windows(model, loader, batch=batch, run=open_run and open_run(model))


class ClusterWorker:
    """Classifies the videos it is given; one stays alive in each process of a cluster."""

    def __init__(
        self,
        model: nn.Module,
        reading: Reading,
        batch: int,
        threads: int,
        open_run: OpenRun | None,
    ) -> None:
        torch.set_num_threads(threads)
        self.run = open_run and open_run(model)
        self.model = model.to("cuda" if torch.cuda.is_available() else "cpu")
        self.reading, self.batch = reading, batch

    def __call__(self, block: dict[str, Any]) -> dict[str, list[Any]]:
        """Answer for a block of videos."""
        windows = WindowReader([str(video) for video in block["video"]], self.reading)
        rows = answer_windows(self.model, windows, batch=self.batch, run=self.run)
        return {"row": [row.to_dict() for row in rows]}


def on_ray(
    model: nn.Module,
    videos: Sequence[str],
    *,
    reading: Reading,
    workers: int,
    address: str,
    batch: int = 8,
    open_run: OpenRun | None = None,
) -> Iterator[Row]:
    """Classify videos on a cluster, in whatever order they are done.

    Args:
        model: it is sent to the workers.
        videos: files that every machine of the cluster sees under the same names.
        reading: how they are read.
        workers: how many; on a new cluster here they share the machine's threads.
        address: of the cluster, "auto" for the one this machine belongs to, or "local" for a new
            one on this machine.
        batch: clips of one forward pass.
        open_run: as in `on_this_machine`; each worker calls it.
    """
    os.environ.setdefault("RAY_USAGE_STATS_ENABLED", "0")
    require("ray.data", extra="ray", purpose="a cluster")
    ray: Any = require("ray", extra="ray", purpose="a cluster")
    options: dict[str, Any] = {"num_cpus": workers} if address == "local" else {}
    ray.init(address=address, log_to_driver=False, include_dashboard=False, **options)
    threads = max(1, torch.get_num_threads() // workers) if address == "local" else 1
    try:
        ray.data.DataContext.get_current().enable_progress_bars = False
        items = [{"video": video} for video in videos]
        blocks = max(workers, -(-len(items) // BLOCK))
        rows = ray.data.from_items(items, override_num_blocks=blocks).map_batches(
            ClusterWorker,
            fn_constructor_args=(model, reading, batch, threads, open_run),
            batch_size=BLOCK,
            compute=ray.data.ActorPoolStrategy(size=workers),
            num_gpus=1 if torch.cuda.is_available() else 0,
        )
        for values in rows.iter_rows():
            yield Row.from_dict(values["row"])
    finally:
        ray.shutdown()
