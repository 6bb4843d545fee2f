"""Videos in, what the model wants out, called as Hugging Face's image processors are."""

from collections.abc import Sequence
from contextlib import closing
from pathlib import Path
from typing import Self

import numpy as np
import torch
from torch import Tensor, nn

from tokenselect.checkpoints.model import info_of, rule_of
from tokenselect.data import FrameSource, open_video
from tokenselect.data.clips import ClipRule
from tokenselect.data.sources import FramesInMemory
from tokenselect.weights import read_metadata

Video = str | Path | Tensor | np.ndarray


class Preprocessor:
    """Picks, resizes, crops and normalises frames.

        model = tokenselect.load_model("runs/mine")
        preprocess = tokenselect.Preprocessor(model)
        logits = model(**preprocess("clip.mp4"))

    It takes the model's clip rule in its place, too.
    """

    def __init__(self, model: nn.Module | ClipRule) -> None:
        self.rule = model if isinstance(model, ClipRule) else info_of(model).clip_rule

    @classmethod
    def from_pretrained(cls, path: str | Path) -> Self:
        """Make the one of a run, checkpoint, file or Hub repository from its description alone."""
        metadata = read_metadata(path)
        if "model" not in metadata:
            raise ValueError(f"{path} does not say how its model takes videos")
        return cls(rule_of(metadata["model"], metadata.get("recipe")))

    def __call__(
        self, videos: Video | Sequence[Video], *, clips: int = 1, crops: int = 1
    ) -> dict[str, Tensor]:
        """Make a batch of videos, to be given to the model as `model(**inputs)`.

        Args:
            videos: one or several: a file, (t, 3, h, w) uint8 frames as a tensor, or (t, h, w, 3)
                uint8 frames as an array.
            clips: of each video, spread over it.
            crops: of each clip.

        Returns:
            `video`, (videos · clips · crops, 3, frames, height, width): the views of a video beside
            each other.
        """
        listed = [videos] if isinstance(videos, Video) else list(videos)
        views = []
        for video in listed:
            with closing(open_frames(video)) as source:
                views.append(self.rule.read_crops(source, clips=clips, crops=crops))
        return {"video": self.rule.normalize(torch.cat(views))}


def open_frames(video: Video) -> FrameSource:
    """Open a file, or take frames that are there already."""
    if isinstance(video, str | Path):
        return open_video(video)
    is_array = isinstance(video, np.ndarray)
    frames = torch.from_numpy(video).permute(0, 3, 1, 2) if is_array else torch.as_tensor(video)
    if frames.ndim != 4 or frames.shape[1] != 3 or frames.dtype != torch.uint8:
        wanted = "array (t, h, w, 3)" if is_array else "tensor (t, 3, h, w)"
        raise ValueError(f"frames must be a uint8 {wanted}, got {video.dtype} {tuple(video.shape)}")
    return FramesInMemory(frames, fps=30.0, name="frames")
