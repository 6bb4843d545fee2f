"""Sample clips made by our own code: the test clips of the synthetic actions."""

from __future__ import annotations

import os
from collections.abc import Sequence
from pathlib import Path

import numpy as np
import torch
from torch import Tensor

from tokenselect.data import write_video
from tokenselect.data.synthetic import CLASS_NAMES, SyntheticActions

NUM_SAMPLES = len(CLASS_NAMES)
FRAMES, SIDE, FPS = 16, 192, 8.0  # twice the side that the small model sees, for the eye


class FramesInMemory:
    """Frames that are there already, read like a file.

    Args:
        frames: (t, 3, h, w) uint8.
        fps: frames a second.
        name: what they are called in messages.
    """

    def __init__(self, frames: Tensor, *, fps: float, name: str) -> None:
        self.frames, self.fps, self.path = frames, fps, name
        self.num_frames = len(frames)
        self.times = np.arange(self.num_frames) / fps

    @property
    def size(self) -> tuple[int, int]:
        """Height and width of a frame."""
        return self.frames.shape[2], self.frames.shape[3]

    def read(self, indices: Sequence[int]) -> Tensor:
        """Return (t, 3, h, w) uint8 frames in the order of `indices`."""
        return self.frames[torch.as_tensor(list(indices))]

    def verify(self) -> None:
        """Nothing can be damaged."""

    def close(self) -> None:
        """Nothing is open."""


def sample_clips() -> SyntheticActions:
    """Give the clips that no model was trained on, one of each class and so on."""
    return SyntheticActions(NUM_SAMPLES, frames=FRAMES, size=SIDE, split="test")


def open_sample(number: int) -> FramesInMemory:
    """Draw sample clip `number`."""
    if not 0 <= number < NUM_SAMPLES:
        raise ValueError(f"samples are numbered 0 to {NUM_SAMPLES - 1}, got {number}")
    frames = sample_clips().video(number).contiguous()
    return FramesInMemory(frames, fps=FPS, name=f"sample:{number}")


def sample_label(number: int) -> str:
    """Give the action that sample clip `number` shows."""
    return CLASS_NAMES[number]


def write_samples(folder: str | os.PathLike[str], *, count: int = NUM_SAMPLES) -> list[Path]:
    """Write the first sample clips as files named by what they show."""
    place = Path(folder)
    place.mkdir(parents=True, exist_ok=True)
    paths = []
    for number in range(count):
        path = place / f"sample-{number}-{sample_label(number)}.mp4"
        write_video(path, open_sample(number).frames, fps=FPS, options={"crf": "12"})
        paths.append(path)
    return paths
