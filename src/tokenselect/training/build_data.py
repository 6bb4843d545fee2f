"""From a recipe to data sets."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

from torch.utils.data import Dataset, default_collate

from tokenselect.data import (
    EvalTransform,
    SampleList,
    SegmentSampler,
    StrideSampler,
    TrainTransform,
    VideoDataset,
    collate_clips,
    collate_views,
    open_video,
    parse_views,
    read_annotations,
)
from tokenselect.data.augmentation import IMAGENET_STATS, KINETICS_STATS
from tokenselect.data.clip_cache import ClipCache
from tokenselect.data.decode import FrameSource
from tokenselect.data.synthetic import SyntheticActions
from tokenselect.training.recipe import AugmentationRecipe, DataRecipe, PartRecipe

STATS = {"kinetics": KINETICS_STATS, "imagenet": IMAGENET_STATS}
PARTS = ("train", "val", "test")


@dataclass(frozen=True)
class ClipSet:
    """A data set with what its users need to know of it.

    Attributes:
        dataset: of (clip or views, label) pairs.
        collate: joins them into a batch.
        class_names: of the labels.
        set_epoch: makes the data set draw as in an epoch.
        count_replaced: tells how many broken videos were replaced so far.
    """

    dataset: Dataset[Any]
    collate: Callable[[list[Any]], Any]
    class_names: Sequence[str]
    set_epoch: Callable[[int], object] = id
    count_replaced: Callable[[], int] = int

    def __len__(self) -> int:
        return len(self.dataset)  # type: ignore[arg-type]


def build_train_set(data: DataRecipe, augmentation: AugmentationRecipe, *, seed: int) -> ClipSet:
    """Build the training clips: drawn anew in each epoch, augmented."""
    if data.source == "synthetic":
        clips = SyntheticActions(
            data.train_clips, frames=data.frames, size=data.size, seed=seed, is_training=True
        )
        return ClipSet(clips, default_collate, clips.class_names, clips.set_epoch)
    transform = TrainTransform(
        data.size,
        scale=augmentation.scale,
        ratio=augmentation.ratio,
        flip=augmentation.flip,
        jitter=augmentation.jitter,
        rand_augment_ops=augmentation.rand_augment_ops,
        rand_augment_magnitude=augmentation.rand_augment_magnitude,
        erasing=augmentation.erasing,
        stats=STATS[data.stats],
    )
    listed = list_videos(data, data.train, "train")
    videos = VideoDataset(
        listed.samples,
        sampler=build_sampler(data, num_clips=1),
        transform=transform,
        seed=seed,
        is_training=True,
        repeats=augmentation.repeats,
        open_source=build_opener(data),
    )
    return ClipSet(
        videos,
        collate_clips,
        listed.class_names,
        videos.set_epoch,
        lambda: sum(videos.failures.values()),
    )


def build_test_set(data: DataRecipe, part: str, *, views: str = "1x1") -> ClipSet:
    """Build clips to test on: fixed, `views` (clips x crops) of each video.

    Args:
        data: where from.
        part: "val" or "test" (or "train", without its augmentation).
        views: such as "5x1"; synthetic clips have one view only.
    """
    if part not in PARTS:
        raise ValueError(f"part must be one of {', '.join(PARTS)}, got {part!r}")
    num_clips, crops = parse_views(views)
    if data.source == "synthetic":
        if num_clips * crops > 1:
            raise ValueError(f"a synthetic clip has one view, got views={views!r}")
        length = (data.test_clips if part == "test" else None) or data.val_clips
        made = SyntheticActions(length, frames=data.frames, size=data.size, split=part)  # type: ignore[arg-type]
        return ClipSet(made, default_collate, made.class_names)
    listed = list_videos(data, getattr(data, part), part)
    transform = EvalTransform(
        data.size, short_side=data.short_side, crops=crops, stats=STATS[data.stats]
    )
    videos = VideoDataset(
        listed.samples,
        sampler=build_sampler(data, num_clips=num_clips),
        transform=transform,
        open_source=build_opener(data),
    )
    return ClipSet(
        videos,
        collate_views,
        listed.class_names,
        count_replaced=lambda: sum(videos.failures.values()),
    )


def build_sampler(data: DataRecipe, *, num_clips: int) -> StrideSampler | SegmentSampler:
    """Build the rule that picks the frames of a clip."""
    if data.stride is None:
        return SegmentSampler(data.frames, num_clips=num_clips)
    return StrideSampler(data.frames, data.stride, num_clips=num_clips)


def build_opener(data: DataRecipe) -> Callable[[str], FrameSource]:
    """Build what opens a video: the decoder, or the cache in front of it."""
    if data.cache is None:
        return open_video
    return ClipCache(data.cache, short_side=data.cache_short_side).open


def list_videos(data: DataRecipe, part: PartRecipe, name: str) -> SampleList:
    """Read the annotations of a part."""
    if data.root is None:
        raise ValueError("the recipe reads videos: say where they are with --data.root FOLDER")
    root = Path(data.root)
    table = data.table
    if part.where:
        if table is None:
            raise ValueError(f"data.{name}.where needs data.table to name the columns")
        table = replace(table, where=part.where)
    return read_annotations(
        root / (part.annotations or ""),
        root=root,
        annotation_format=data.format,
        class_names=root / data.class_names if data.class_names is not None else None,
        table=table,
    )
