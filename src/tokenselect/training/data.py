"""From a recipe to data sets."""

import signal
from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import KW_ONLY, asdict, dataclass, replace
from pathlib import Path
from typing import Any

import torch
from torch import Tensor
from torch.utils.data import DataLoader, Dataset, Sampler, default_collate

from tokenselect.data.annotations import read_annotations
from tokenselect.data.augmentation import TrainTransform
from tokenselect.data.cache import ClipCache
from tokenselect.data.clips import STATS, EvalTransform, SegmentSampler, StrideSampler, parse_views
from tokenselect.data.dataset import NO_LABEL, Example, VideoDataset, collate_clips, collate_views
from tokenselect.data.labels import Sample, SampleList
from tokenselect.data.split import UNDIVIDED, find_parts
from tokenselect.data.synthetic import SyntheticActions
from tokenselect.data.transforms import seeded_generator
from tokenselect.training.sections import AugmentationRecipe, DataRecipe, PartRecipe, blaming

PARTS = ("train", "val", "test")
OF_BATCHES = ("mixup", "cutmix", "label_smoothing", "repeats")  # keys of the augmentation


@dataclass(frozen=True)
class ClipSet:
    """A data set with what its users need to know of it."""

    dataset: Dataset[Any]  # of (clip or views, label) pairs
    collate: Callable[[list[Any]], Any]  # joins them into a batch
    class_names: Sequence[str]  # of the labels

    def __len__(self) -> int:
        return len(self.dataset)  # type: ignore[arg-type]

    def batches(self, batch_size: int = 1, *, workers: int = 0, **options: Any) -> DataLoader[Any]:
        """Load the clips in their order; `options` are those of `DataLoader`."""
        options |= {"num_workers": workers, "collate_fn": self.collate}
        return DataLoader(self.dataset, batch_size, **options)

    def count_classes(self) -> Tensor:
        """Count the listed videos of each class; zeros where none are listed."""
        labels = [s.label for s in getattr(self.dataset, "samples", ()) if s.label is not None]
        return torch.tensor(labels, dtype=torch.long).bincount(minlength=len(self.class_names))

    def even_weights(self) -> Tensor:
        """Give each training video the weight that makes all classes as likely."""
        counts = self.count_classes()
        return 1 / counts[[sample.label for sample in self.dataset.samples]]  # type: ignore[attr-defined]

    def count_replaced(self) -> int:
        """Count the broken videos that were replaced so far."""
        return sum(getattr(self.dataset, "failures", {}).values())


def build_train_set(data: DataRecipe, augmentation: AugmentationRecipe, *, seed: int) -> ClipSet:
    """Build the training clips: drawn anew in each epoch, augmented."""
    if data.source == "synthetic":
        clips = SyntheticActions(
            data.train_clips, frames=data.frames, size=data.size, seed=seed, is_training=True
        )
        return ClipSet(clips, default_collate, clips.class_names)
    with blaming("augmentation"):
        own = {key: value for key, value in asdict(augmentation).items() if key not in OF_BATCHES}
        transform = TrainTransform(data.size, stats=STATS[data.stats], center=data.center, **own)
    listed = read_listed(data, "train")
    unlabelled = [sample.path for sample in listed.samples if sample.label is None]
    if unlabelled:
        raise ValueError(
            f"data.train: {len(unlabelled)} training videos have no label, such as {unlabelled[0]}"
        )
    drawn = {"seed": seed, "is_training": True, "repeats": augmentation.repeats}
    videos = build_videos(data, listed.samples, transform=transform, **drawn)
    return ClipSet(videos, collate_clips, listed.class_names)


def build_test_set(
    data: DataRecipe, part: str, *, views: str = "1x1", class_names: Sequence[str] | None = None
) -> ClipSet:
    """Build clips to test on: fixed, `views` (clips x crops) of each video, not augmented."""
    num_clips, crops = parse_views(views)
    if data.source == "synthetic":
        if num_clips * crops > 1:
            raise ValueError(f"a synthetic clip has one view, got views={views!r}")
        length = (data.test_clips if part == "test" else None) or data.val_clips
        made = SyntheticActions(length, frames=data.frames, size=data.size, split=part)  # type: ignore[arg-type]
        return ClipSet(made, default_collate, made.class_names)
    listed = read_listed(data, part, class_names=class_names)
    stats, center = STATS[data.stats], data.center
    transform = EvalTransform(
        data.size, short_side=data.short_side, crops=crops, stats=stats, center=center
    )
    videos = build_videos(data, listed.samples, num_clips=num_clips, transform=transform)
    return ClipSet(videos, collate_views, listed.class_names)


def build_videos(
    data: DataRecipe, samples: Sequence[Sample], *, num_clips: int = 1, **options: Any
) -> VideoDataset:
    """Build clips of videos, read through the cache if there is one."""
    sampler: StrideSampler | SegmentSampler = SegmentSampler(data.frames, num_clips=num_clips)
    if data.stride is not None:
        sampler = StrideSampler(data.frames, data.stride, num_clips=num_clips)
    if data.cache is not None:
        options["open_source"] = ClipCache(data.cache, short_side=data.cache_short_side).open
    return VideoDataset(samples, sampler=sampler, **options)


def single_views(batches: Iterable[tuple[Tensor, Tensor]]) -> Iterator[tuple[Tensor, Tensor]]:
    """Give labelled clips without the dimension of their one view."""
    for videos, labels in batches:
        yield videos.flatten(0, videos.ndim - 5)[labels >= 0], labels[labels >= 0]


def read_part(
    data: DataRecipe, name: str, *, class_names: Sequence[str] | None = None
) -> SampleList:
    """Read the annotations of a part.

    The labels are those of `class_names`, or of the training videos, so that a class that a part
    lacks shifts no label.
    """
    if name not in PARTS:
        raise ValueError(f"part must be one of {', '.join(PARTS)}, got {name!r}")
    part: PartRecipe = getattr(data, name)
    if data.root is None:
        raise ValueError("the recipe reads videos: say where they are with --data.root FOLDER")
    root, table = Path(data.root), data.table
    if part.where:
        if table is None:
            raise ValueError(f"data.{name}.where needs data.table to name the columns")
        table = replace(table, where=part.where)
    names: Sequence[str] | Path | None = class_names
    if names is None and data.class_names is not None:
        names = root / data.class_names
    elif names is None and name != "train":
        names = read_part(data, "train").class_names
    file = find_part(root, part, name)
    return read_annotations(
        file, root=root, annotation_format=data.format, class_names=names, table=table
    )


def read_listed(
    data: DataRecipe, name: str, *, class_names: Sequence[str] | None = None
) -> SampleList:
    """Read the annotations of a part that must name videos."""
    with blaming(f"data.{name}"):
        listed = read_part(data, name, class_names=class_names)
        if not listed.samples:
            raise ValueError("no video is listed: check its annotations and its `where`")
    return listed


def find_part(root: Path, part: PartRecipe, name: str) -> Path:
    """Give the annotations of a part: those the recipe names, or what `root` has by that name."""
    if part.annotations is not None:
        return root / part.annotations
    found = find_parts(root)
    if name == "train":
        found = {"train": found[UNDIVIDED]} if UNDIVIDED in found else found
    if name not in found:
        raise ValueError(
            f"the recipe names no {name} videos, and {root} has no part of that name: set "
            f"data.{name}.annotations, or let `tokenselect init {root}` divide the videos"
        )
    return found[name]


@dataclass(eq=False)
class EpochOrder(Sampler[list[int]]):
    """Batches of indices for one process: a new order each epoch, from any batch on.

    A global batch is cut between the processes in order, and each share into equal parts; the
    rest of the data that fills no batch sits out an epoch. Set `epoch` and `first_batch` before
    iterating.
    """

    length: int  # of the data
    _: KW_ONLY
    batch_size: int  # over all processes
    seed: int
    rank: int = 0
    processes: int = 1
    parts: int = 1
    weights: Tensor | None = None  # by which clips are drawn; None takes each once
    epoch: int = 0
    first_batch: int = 0

    def __post_init__(self) -> None:
        self.part_size, rest = divmod(self.batch_size, self.processes * self.parts)
        if rest:
            raise ValueError(
                "schedule.batch_size must be a multiple of the number of processes × "
                f"schedule.accumulation = {self.processes} × {self.parts}, got {self.batch_size}"
            )
        if self.length < self.batch_size:
            raise ValueError(
                "schedule.batch_size must be at most the number of training clips = "
                f"{self.length}, got {self.batch_size}"
            )

    @property
    def batches_per_epoch(self) -> int:
        """Count the optimizer steps of an epoch."""
        return self.length // self.batch_size

    def __len__(self) -> int:
        return (self.batches_per_epoch - self.first_batch) * self.parts

    def __iter__(self) -> Iterator[list[int]]:
        generator = seeded_generator(self.seed, self.epoch)
        if self.weights is None:
            order = torch.randperm(self.length, generator=generator).tolist()
        else:
            order = torch.multinomial(self.weights, self.length, True, generator=generator).tolist()
        for batch in range(self.first_batch, self.batches_per_epoch):
            for number in range(self.parts):
                place = self.rank * self.parts + number
                start = batch * self.batch_size + place * self.part_size
                yield order[start : start + self.part_size]


class ProcessShare(Dataset[Any]):
    """Every `processes`-th item of a data set, from number `rank` on.

    All processes get equally many, as sharded models need: where the data run out, the first item
    comes again without a label, and no count takes it.
    """

    def __init__(self, dataset: Dataset[Any], *, rank: int, processes: int) -> None:
        self.dataset, self.rank, self.processes = dataset, rank, processes
        self.total: int = len(dataset)  # type: ignore[arg-type]

    def __len__(self) -> int:
        return -(-self.total // self.processes)

    def __getitem__(self, index: int) -> Any:
        if not 0 <= index < len(self):
            raise IndexError(f"index must be in [0, {len(self)}), got {index}")
        place = self.rank + index * self.processes
        if place < self.total:
            return self.dataset[place]
        first = self.dataset[0]
        return Example(first[0], NO_LABEL) if isinstance(first, Example) else (first[0], NO_LABEL)


def build_loader(
    clips: ClipSet, order: EpochOrder, *, workers: int, pin_memory: bool = False
) -> DataLoader[Any]:
    """Build the loader of the training data; each item is one part of a batch."""
    return clips.batches(
        workers=workers,
        batch_sampler=order,
        persistent_workers=workers > 0,
        pin_memory=pin_memory,
        worker_init_fn=ignore_interrupts,
        generator=torch.Generator().manual_seed(0),  # leaves the global generator alone
    )


def ignore_interrupts(worker: int) -> None:
    """Let Ctrl+C reach the training process alone, which then ends its loading processes."""
    signal.signal(signal.SIGINT, signal.SIG_IGN)
