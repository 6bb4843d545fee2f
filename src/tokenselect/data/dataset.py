"""Clips for training and testing: a map-style data set whose draws can be made again.

What sample i looks like in an epoch depends on (seed, epoch, i) alone: not on the number of
workers, nor on the order of reading, nor on what came before. A run that resumes in the middle of
an epoch therefore sees what it would have seen.
"""

import logging
from collections.abc import Callable, Iterator, Sequence
from typing import NamedTuple

import torch
from torch import Generator, Tensor
from torch.utils.data import Dataset

from tokenselect.data.augmentation import Transform
from tokenselect.data.clips import Sampler
from tokenselect.data.frame_source import FrameSource, VideoError
from tokenselect.data.labels import Sample
from tokenselect.data.transforms import draw_integer, seeded_generator
from tokenselect.data.video import open_video
from tokenselect.threads import shared_zeros

logger = logging.getLogger(__name__)

MAX_REPLACEMENTS = 10
NO_LABEL = -1


class Example(NamedTuple):
    """One video as the model sees it."""

    video: Tensor  # (v, 3, t, h, w) float views: repeats in training, clips × crops in testing
    label: int  # class number, or `NO_LABEL`


class Batch(NamedTuple):
    """Examples side by side."""

    video: Tensor  # (b, 3, t, h, w) clips, or (b, v, 3, t, h, w) views
    labels: Tensor  # (b,) class numbers; `NO_LABEL` is to be left out


class VideoDataset(Dataset[Example]):
    """Videos decoded, sampled and transformed when asked for.

    A video that cannot be read is logged, counted and replaced by another one, drawn like
    everything else, so that a run neither crashes nor hides it. In training the replacement brings
    its own label; else it gets `NO_LABEL`, so that an evaluation leaves it out.

    Args:
        is_training: draw the clips anew in each epoch; else the sampler's fixed clips.
        repeats: differently drawn examples of a video, decoded once (repeated augmentation).
        open_source: opens a path; `ClipCache.open` reads decoded clips from disk.
    """

    def __init__(
        self,
        samples: Sequence[Sample],
        *,
        sampler: Sampler,
        transform: Transform,
        seed: int = 0,
        is_training: bool = False,
        repeats: int = 1,
        open_source: Callable[[str], FrameSource] = open_video,
    ):
        if not samples:
            raise ValueError("samples must name at least one video")
        if repeats > 1 and not is_training:
            raise ValueError(f"repeats must be 1 except in training, got {repeats}")
        self.samples, self.sampler, self.transform = list(samples), sampler, transform
        self.seed, self.is_training, self.repeats = seed, is_training, repeats
        self.open_source = open_source
        # Shared with the worker processes, also those that outlive an epoch.
        self._epoch = shared_zeros(dtype=torch.int64)
        self._failures = shared_zeros(len(self.samples), dtype=torch.int32)

    def set_epoch(self, epoch: int) -> None:
        """Make the draws those of `epoch`; call it before iterating."""
        self._epoch.fill_(epoch)

    @property
    def failures(self) -> dict[str, int]:
        """How often each broken video had to be replaced, counted over all workers."""
        broken = self._failures.nonzero().flatten().tolist()
        return {self.samples[index].path: int(self._failures[index]) for index in broken}

    def __len__(self) -> int:
        return len(self.samples)

    def __getitem__(self, index: int) -> Example:
        """Return sample `index` of the current epoch, or what replaces it."""
        epoch = int(self._epoch) if self.is_training else 0
        tried: list[int] = []
        for chosen in self._candidates(index, seeded_generator(self.seed, epoch, index)):
            try:
                video = self._load(chosen, epoch, index)
            except VideoError as error:
                tried.append(chosen)
                self._failures[chosen] += 1
                logger.warning("%s; using another video instead", error)
                continue
            label = self.samples[chosen].label
            if label is None or (tried and not self.is_training):
                label = NO_LABEL
            return Example(video, label)
        raise VideoError(
            self.samples[index].path,
            f"and {len(tried) - 1} others drawn in its place cannot be read; "
            "run `tokenselect data check` on the data set",
        )

    def _candidates(self, index: int, generator: Generator) -> Iterator[int]:
        """Give `index`, then other videos in case it cannot be read, none of them twice."""
        yield index
        others = [other for other in range(len(self)) if other != index]
        for _ in range(min(MAX_REPLACEMENTS, len(others))):
            yield others.pop(draw_integer(0, len(others), generator=generator))

    def _load(self, chosen: int, epoch: int, index: int) -> Tensor:
        """Return (v, 3, t, h, w) views of video `chosen`, drawn for place `index`."""
        fit, finish = self.transform.fit, self.transform.finish
        with self.open_source(self.samples[chosen].path) as source:
            clips = [
                (clip, generator)
                for repeat in range(self.repeats)
                for generator in [seeded_generator(self.seed, epoch, index, repeat)]
                for clip in self._sample(self.samples[chosen], source.num_frames, generator)
            ]
            numbers, draws = zip(*clips, strict=True)
            fitted = source.read_clips(
                numbers, lambda height, width: [fit(height, width, generator=g) for g in draws]
            )
        pairs = zip(fitted, draws, strict=True)
        return torch.cat([finish(frames, generator=g) for frames, g in pairs])

    def _sample(self, sample: Sample, num_frames: int, generator: Generator) -> list[list[int]]:
        start, stop = sample.span or (0, num_frames)
        if stop > num_frames:
            raise VideoError(sample.path, f"has {num_frames} frames, but its part ends at {stop}")
        clips = self.sampler(stop - start, generator=generator if self.is_training else None)
        return [[start + frame for frame in clip] for clip in clips]


def collate_clips(examples: Sequence[Example]) -> Batch:
    """Join training examples; each repeat of a video becomes a clip of its own."""
    labels = [example.label for example in examples for _ in range(len(example.video))]
    return Batch(torch.cat([example.video for example in examples]), torch.tensor(labels))


def collate_views(examples: Sequence[Example]) -> Batch:
    """Join test examples; the views of a video stay together."""
    labels = [example.label for example in examples]
    return Batch(torch.stack([example.video for example in examples]), torch.tensor(labels))
