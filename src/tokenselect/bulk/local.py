"""Local workers: processes that read videos, and this one that runs the model."""

from __future__ import annotations

from collections.abc import Iterator, Sequence

from torch.utils.data import DataLoader, Dataset

from tokenselect.bulk.rows import Reading, Row, answer, read_video
from tokenselect.prediction.loaded import LoadedModel
from tokenselect.prediction.preprocessor import Preprocessor


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
    loaded: LoadedModel, videos: Sequence[str], *, clips: int, crops: int, workers: int
) -> Iterator[Row]:
    """Classify videos, in order.

    Args:
        loaded: the model, on the device that it shall run on.
        videos: files.
        clips: of each video.
        crops: of each clip.
        workers: processes that read; 0 reads in this one.
    """
    readings = Readings(videos, Preprocessor(loaded.rule), clips=clips, crops=crops)
    for reading in DataLoader(readings, batch_size=None, num_workers=workers):
        yield answer(loaded, reading)
