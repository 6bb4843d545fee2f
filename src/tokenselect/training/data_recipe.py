"""The part of a recipe that says where clips come from."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Literal

from tokenselect.data import TableLayout


@dataclass(frozen=True, kw_only=True)
class PartRecipe:
    """One part of the videos: for training, validation or testing.

    Attributes:
        annotations: file of the part's videos, or folder of class folders; below `data.root`.
        where: what other columns of a table must hold, such as {signer: 1-7}.
    """

    annotations: str | None = None
    where: dict[str, str] = field(default_factory=dict)


@dataclass(frozen=True, kw_only=True)
class DataRecipe:
    """Where the clips come from and how they are cut.

    Attributes:
        source: "synthetic" makes clips, "videos" reads annotated videos.
        root: folder of the videos; recipes name no machine, so give it on the command line.
        train: videos to learn from.
        val: videos to validate on after each epoch.
        test: videos that `tokenselect evaluate` takes.
        format: of the annotations; None tells it from their content.
        class_names: file with the names of the classes in order, where the format needs it.
        table: columns, where the annotations are a table of another layout.
        num_classes: None counts those of the training videos.
        frames: t, frames of a clip.
        stride: frames of the video from one frame of the clip to the next; None takes one frame of
            each of t equal segments of the whole video.
        size: side of the square that the model sees.
        short_side: of the picture before a test crop is cut from it; None takes `size`.
        stats: mean and deviation of the colours, those of the model's first training.
        train_clips: clips of an epoch (synthetic only); no two epochs share one.
        val_clips: clips to validate on (synthetic only).
        test_clips: clips to test on (synthetic only); None takes `val_clips`.
        workers: processes that load data, for each training process.
        cache: folder for decoded videos, safe to delete; None keeps none.
        cache_short_side: of the pictures in the cache; None keeps the videos' size.
    """

    source: Literal["synthetic", "videos"] = "synthetic"
    root: str | None = None
    train: PartRecipe = field(default_factory=PartRecipe)
    val: PartRecipe = field(default_factory=PartRecipe)
    test: PartRecipe = field(default_factory=PartRecipe)
    format: str | None = None
    class_names: str | None = None
    table: TableLayout | None = None
    num_classes: int | None = None
    frames: int = 16
    stride: int | None = 4
    size: int = 224
    short_side: int | None = None
    stats: Literal["kinetics", "imagenet"] = "kinetics"
    train_clips: int = 4000
    val_clips: int = 400
    test_clips: int | None = None
    workers: int = 2
    cache: str | None = None
    cache_short_side: int | None = None
