"""Many videos through one model: read in workers, batched across videos, here or on a cluster."""

import os
from collections.abc import Callable, Iterable, Iterator, Sequence
from contextlib import closing
from functools import partial, reduce
from pathlib import Path
from typing import Any

import torch
from torch import Tensor, nn
from torch.utils.data import DataLoader, IterableDataset

from tokenselect.checkpoints import info_of
from tokenselect.data import VideoError, open_video
from tokenselect.data.labels import fold
from tokenselect.extras import require
from tokenselect.inference import predict
from tokenselect.inference.predict import Moment, Reading, Window
from tokenselect.inference.rows import Row, printable
from tokenselect.measure.accuracy import Runner, score_views

TOP = 5
FILE_ERRORS = (VideoError, OSError, ValueError, RuntimeError)  # of a file, not of a program
OpenRun = Callable[[nn.Module], Runner]
BLOCK = 16  # videos that a cluster hands out at a time: what a lost worker has to do again
Step = Callable[[Iterable[Any]], Iterator[Any]]
ReadWindow = tuple[str, Window | str]  # a video's name; a window of it, or why there is none


def read_videos(videos: Iterable[str], reading: Reading) -> Iterator[ReadWindow]:
    """Cut videos window by window, each beside its name; one that cannot be read ends with why."""
    for video in videos:
        try:
            with closing(open_video(video)) as source:
                for window in predict.read_windows(source, reading):
                    yield video, window
        except FILE_ERRORS as error:
            yield video, str(error) or type(error).__name__


class SharedWork(IterableDataset[Any]):
    """Jobs, done in steps; each worker of a data loader takes the next when it has time."""

    def __init__(self, jobs: Sequence[Any], *steps: Step) -> None:
        self.jobs, self.steps = jobs, steps
        self.taken = torch.multiprocessing.get_context().Value("q", 0)

    def __iter__(self) -> Iterator[Any]:
        return reduce(lambda found, step: step(found), self.steps, self._take())

    def _take(self) -> Iterator[Any]:
        while True:
            with self.taken.get_lock():
                number, self.taken.value = self.taken.value, self.taken.value + 1
            if number >= len(self.jobs):
                return
            yield self.jobs[number]


def read_and_answer(
    jobs: Sequence[Any], read: Step, answer: Step, *, model: nn.Module, workers: int, is_torch: bool
) -> Iterator[Any]:
    """Read what each job names and answer what was read, in whatever order it is done.

    On a CPU every worker reads and runs the model in one thread: no pixel passes from process to
    process, and no thread waits for another. Where torch does not run the model, or an accelerator
    does, the workers read and this process answers. It does all where there are no workers, or
    fewer than two jobs each.
    """
    if not workers or len(jobs) < 2 * workers:
        yield from answer(read(jobs))
        return
    in_workers = is_torch and next(model.parameters()).device.type == "cpu"
    work = SharedWork(jobs, read, answer) if in_workers else SharedWork(jobs, read)
    loader = DataLoader(work, batch_size=None, num_workers=workers, in_order=False)
    yield from loader if in_workers else answer(loader)


@torch.inference_mode()
def answer_windows(
    windows: Iterable[ReadWindow], *, model: nn.Module, batch: int = 8, run: Runner | None = None
) -> Iterator[Row]:
    """Classify windows, `batch` clips in one forward pass, and give each video's row.

    The windows of a video come in order beside its name; those of several may alternate. `run` maps
    clips to logits in the model's place: its file in another runtime.
    """
    moments: dict[str, list[Moment]] = {}
    waiting: list[tuple[str, Window]] = []

    def answer() -> Iterator[Row]:
        unseen = [window for _, window in waiting]
        scores = predict.score_windows(model, unseen, batch=batch, run=run)
        for (video, window), probabilities in zip(waiting, scores, strict=True):
            moments.setdefault(video, []).append(Moment(window.start, window.end, probabilities))
            if window.number == window.of:
                yield row_of(model, video, moments.pop(video))
        waiting.clear()

    for video, window in windows:
        if isinstance(window, str):
            yield from answer() if waiting else ()
            moments.pop(video, None)
            yield Row(printable(video), error=window)
            continue
        waiting.append((video, window))
        if len(waiting) * len(window.crops) >= batch:
            yield from answer()
    yield from answer() if waiting else ()


def row_of(model: nn.Module, video: str, moments: list[Moment]) -> Row:
    """Make the row of a video of its windows' answers."""
    names = info_of(model).id2label
    whole = predict.Timeline(moments, moments[-1].end).whole
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
    """Classify videos in worker processes (`read_and_answer`), in whatever order they are done.

    `open_run` gives what runs the model, where torch does not.
    """
    if workers and open_run is None and next(model.parameters()).device.type == "cpu":
        batch = min(batch, len(videos) // (2 * workers) or batch)  # each answers twice: none idles
    read = partial(read_videos, reading=reading)
    answer = partial(answer_windows, model=model, batch=batch, run=open_run and open_run(model))
    return read_and_answer(
        videos, read, answer, model=model, workers=workers, is_torch=open_run is None
    )


def read_batches(
    numbers: Iterable[int], *, dataset: Any, collate: Callable[[list[Any]], Any], batch: int
) -> Iterator[tuple[int, Tensor, Tensor]]:
    """Read batches of a labelled data set by number: (number, video, labels)."""
    for number in numbers:
        places = range(number * batch, min((number + 1) * batch, len(dataset)))
        yield number, *collate([dataset[place] for place in places])


@torch.inference_mode()
def answer_batches(
    batches: Iterable[tuple[int, Tensor, Tensor]], *, run: Runner, device: torch.device
) -> Iterator[tuple[int, Tensor, Tensor]]:
    """Give number, probabilities and labels of batches."""
    for number, video, labels in batches:
        yield number, score_views(run, video.to(device)).cpu(), labels


class ClusterWorker:
    """Classifies the videos it is given; one stays alive in each process of a cluster."""

    def __init__(
        self, model: nn.Module, reading: Reading, batch: int, threads: int, open_run: OpenRun | None
    ) -> None:
        torch.set_num_threads(threads)
        model = model.to("cuda" if torch.cuda.is_available() else "cpu")
        run = open_run and open_run(model)
        self.read = partial(read_videos, reading=reading)
        self.answer = partial(answer_windows, model=model, batch=batch, run=run)

    def __call__(self, block: dict[str, Any]) -> dict[str, list[Any]]:
        """Answer for a block of videos."""
        rows = self.answer(self.read(str(video) for video in block["video"]))
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
    """Classify videos on a cluster, as `on_this_machine` does here.

    Args:
        model: it is sent to the workers, each of which reads, batches and answers.
        videos: files that every machine of the cluster sees under the same names.
        workers: how many; on a new cluster here they share the machine's threads.
        address: of the cluster, "auto" for the one this machine belongs to, or "local" for a new
            one on this machine.
    """
    os.environ.setdefault("RAY_USAGE_STATS_ENABLED", "0")
    require("ray.data", extra="ray", purpose="--ray")
    ray: Any = require("ray", extra="ray", purpose="--ray")
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
