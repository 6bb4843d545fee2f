"""One row a video: what is in it, or why it could not be read."""

from __future__ import annotations

from dataclasses import asdict, dataclass
from typing import Any

import torch
from torch import Tensor

from tokenselect.data import VideoError
from tokenselect.prediction.loaded import LoadedModel
from tokenselect.prediction.preprocessor import Preprocessor

TOP = 5
EXPECTED = (VideoError, OSError, ValueError, RuntimeError)  # of a file, not of a program


@dataclass(frozen=True)
class Row:
    """The answer for a video.

    Attributes:
        video: as it was named.
        label: most likely class; None if the video could not be read.
        probability: of that class.
        labels: most likely classes in order.
        probabilities: of those classes.
        error: why there is no answer, or None.
    """

    video: str
    label: str | None = None
    probability: float | None = None
    labels: tuple[str, ...] = ()
    probabilities: tuple[float, ...] = ()
    error: str | None = None

    def to_dict(self) -> dict[str, Any]:
        """Give plain values, as JSON and tables hold them."""
        values = asdict(self)
        return {**values, "labels": list(self.labels), "probabilities": list(self.probabilities)}


@dataclass(frozen=True)
class Reading:
    """A video's views, (v, 3, frames, height, width), or why it could not be read."""

    video: str
    views: Tensor | None = None
    error: str | None = None


def read_video(video: str, preprocess: Preprocessor, *, clips: int, crops: int) -> Reading:
    """Cut the views of a video; one that cannot be read gives its error instead."""
    try:
        return Reading(video, preprocess(video, clips=clips, crops=crops)["video"])
    except EXPECTED as error:
        return Reading(video, error=str(error) or type(error).__name__)


@torch.inference_mode()
def answer(loaded: LoadedModel, reading: Reading) -> Row:
    """Classify a video by the average of its views."""
    if reading.views is None:
        return Row(reading.video, error=reading.error)
    device = next(loaded.model.parameters()).device
    logits = loaded.model(reading.views.to(device)).float()
    values, classes = logits.softmax(dim=1).mean(dim=0).cpu().topk(min(TOP, logits.shape[1]))
    labels = tuple(loaded.class_names[number] for number in classes.tolist())
    probabilities = tuple(round(value, 6) for value in values.tolist())
    return Row(reading.video, labels[0], probabilities[0], labels, probabilities)
