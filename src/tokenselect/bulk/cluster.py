"""A Ray cluster: each worker reads videos and runs the model (Ray Data)."""

from __future__ import annotations

import importlib
import os
from collections.abc import Iterator, Sequence
from typing import Any

import torch

from tokenselect.bulk.rows import Row, answer, read_video
from tokenselect.prediction.loaded import LoadedModel
from tokenselect.prediction.preprocessor import Preprocessor

BLOCK = 16  # videos handed out at a time: what a lost worker has to do again


class Worker:
    """Classifies the videos it is given; one stays alive in each process.

    Args:
        loaded: the model.
        clips: of each video.
        crops: of each clip.
    """

    def __init__(self, loaded: LoadedModel, clips: int, crops: int) -> None:
        torch.set_num_threads(1)
        device = "cuda" if torch.cuda.is_available() else "cpu"
        loaded.model.to(device)
        self.loaded = loaded
        self.preprocess = Preprocessor(loaded.rule)
        self.views = {"clips": clips, "crops": crops}

    def __call__(self, item: dict[str, Any]) -> dict[str, Any]:
        """Answer for one video."""
        reading = read_video(item["video"], self.preprocess, **self.views)
        return answer(self.loaded, reading).to_dict()


def on_ray(
    loaded: LoadedModel,
    videos: Sequence[str],
    *,
    clips: int,
    crops: int,
    workers: int,
    address: str,
) -> Iterator[Row]:
    """Classify videos on a cluster, in whatever order they are done.

    Args:
        loaded: the model; it is sent to the workers.
        videos: files that every machine of the cluster sees under the same names.
        clips: of each video.
        crops: of each clip.
        workers: how many.
        address: of the cluster, "auto" for the one this machine belongs to, or "local" for a new
            one on this machine.
    """
    os.environ.setdefault("RAY_USAGE_STATS_ENABLED", "0")
    ray = _ray()
    options: dict[str, Any] = {"num_cpus": workers} if address == "local" else {}
    ray.init(address=address, log_to_driver=False, include_dashboard=False, **options)
    try:
        ray.data.DataContext.get_current().enable_progress_bars = False
        items = [{"video": video} for video in videos]
        blocks = max(workers, -(-len(items) // BLOCK))
        rows = ray.data.from_items(items, override_num_blocks=blocks).map(
            Worker,
            fn_constructor_args=(loaded, clips, crops),
            compute=ray.data.ActorPoolStrategy(size=workers),
            num_gpus=1 if torch.cuda.is_available() else 0,
        )
        for row in rows.iter_rows():
            listed = {name: tuple(row[name]) for name in ("labels", "probabilities")}
            yield Row(**{**row, **listed})
    finally:
        ray.shutdown()


def _ray() -> Any:
    """Import Ray, or say how to get it."""
    try:
        importlib.import_module("ray.data")
    except ImportError as error:
        raise ImportError("a cluster needs Ray: pip install 'tokenselect[ray]'") from error
    return importlib.import_module("ray")
