"""Where many videos are classified: local workers, or a Ray cluster."""

from __future__ import annotations

import os
from collections.abc import Iterator, Sequence
from typing import Any

import torch
from torch import nn
from torch.utils.data import DataLoader, Dataset

from tokenselect.extras import require
from tokenselect.inference.bulk import Reading, Row, answer, read_video
from tokenselect.inference.preprocessor import Preprocessor


class Readings(Dataset[Reading]):
    """Videos, read when asked for.

    Args:
        videos: their files.
        preprocess: cuts what the model wants.
        clips: of each video.
        crops: of each clip.
    """

    def __init__(
        self, videos: Sequence[str], preprocess: Preprocessor, *, clips: int, crops: int
    ) -> None:
        self.videos = videos
        self.preprocess = preprocess
        self.clips = clips
        self.crops = crops

    def __len__(self) -> int:
        return len(self.videos)

    def __getitem__(self, index: int) -> Reading:
        return read_video(self.videos[index], self.preprocess, clips=self.clips, crops=self.crops)


def on_this_machine(
    model: nn.Module, videos: Sequence[str], *, clips: int, crops: int, workers: int
) -> Iterator[Row]:
    """Classify videos, in order.

    Args:
        model: on the device that it shall run on.
        videos: files.
        clips: of each video.
        crops: of each clip.
        workers: processes that read; 0 reads in this one.
    """
    readings = Readings(videos, Preprocessor(model), clips=clips, crops=crops)
    for reading in DataLoader(readings, batch_size=None, num_workers=workers):
        yield answer(model, reading)


BLOCK = 16  # videos handed out at a time: what a lost worker has to do again


class Worker:
    """Classifies the videos it is given; one stays alive in each process.

    Args:
        model: the model.
        clips: of each video.
        crops: of each clip.
    """

    def __init__(self, model: nn.Module, clips: int, crops: int) -> None:
        torch.set_num_threads(1)
        device = "cuda" if torch.cuda.is_available() else "cpu"
        self.model = model.to(device)
        self.preprocess = Preprocessor(model)
        self.views = {"clips": clips, "crops": crops}

    def __call__(self, item: dict[str, Any]) -> dict[str, Any]:
        """Answer for one video."""
        reading = read_video(item["video"], self.preprocess, **self.views)
        return answer(self.model, reading).to_dict()


def on_ray(
    model: nn.Module,
    videos: Sequence[str],
    *,
    clips: int,
    crops: int,
    workers: int,
    address: str,
) -> Iterator[Row]:
    """Classify videos on a cluster, in whatever order they are done.

    Args:
        model: it is sent to the workers.
        videos: files that every machine of the cluster sees under the same names.
        clips: of each video.
        crops: of each clip.
        workers: how many.
        address: of the cluster, "auto" for the one this machine belongs to, or "local" for a new
            one on this machine.
    """
    os.environ.setdefault("RAY_USAGE_STATS_ENABLED", "0")
    require("ray.data", extra="ray", purpose="a cluster")
    ray: Any = require("ray", extra="ray", purpose="a cluster")
    options: dict[str, Any] = {"num_cpus": workers} if address == "local" else {}
    ray.init(address=address, log_to_driver=False, include_dashboard=False, **options)
    try:
        ray.data.DataContext.get_current().enable_progress_bars = False
        items = [{"video": video} for video in videos]
        blocks = max(workers, -(-len(items) // BLOCK))
        rows = ray.data.from_items(items, override_num_blocks=blocks).map(
            Worker,
            fn_constructor_args=(model, clips, crops),
            compute=ray.data.ActorPoolStrategy(size=workers),
            num_gpus=1 if torch.cuda.is_available() else 0,
        )
        for row in rows.iter_rows():
            listed = {name: tuple(row[name]) for name in ("labels", "probabilities")}
            yield Row(**{**row, **listed})
    finally:
        ray.shutdown()
