"""The sections of a recipe: what each choice of a run means, and which values it may have."""

import math
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field, fields
from typing import Literal

from tokenselect.data import TableLayout
from tokenselect.selectors.build import DEFAULT_SCORER


def check_range(
    section: str, values: object, names: str, lowest: float, highest: float = math.inf
) -> None:
    """Refuse values outside a range; `names` are keys of a section ("schedule.").

    None passes where the key may be null.
    """
    for key in fields(values):  # type: ignore[arg-type]
        name, value = key.name, getattr(values, key.name)
        if name not in names.split() or (value is None and "None" in str(key.type)):
            continue
        if value is not None and lowest <= value <= highest and value != math.inf:
            continue
        rule = f"{lowest:g} or more" if highest == math.inf else f"in [{lowest:g}, {highest:g}]"
        raise ValueError(f"{section}{name} must be {rule}, got {value}")


@contextmanager
def blaming(keys: str) -> Iterator[None]:
    """Put the recipe's keys in front of what is wrong with their values."""
    try:
        yield
    except (ValueError, FileNotFoundError) as error:
        kind = FileNotFoundError if isinstance(error, FileNotFoundError) else ValueError
        raise kind(f"{keys}: {error}") from None


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
        format: format of the annotations; None recognises it by their content.
        class_names: file with the names of the classes in order, where the format needs it.
        table: columns, where the annotations are a table of another layout.
        num_classes: None counts those of the training videos.
        frames: t, frames per clip.
        stride: frames of the video from one frame of the clip to the next; None takes one frame
            from each of t equal segments of the video.
        size: side of the square that the model sees, in pixels.
        short_side: of the picture before a test crop is cut from it; None takes `size`.
        stats: mean and deviation of the colours, those of the model's first training.
        center: "clip" subtracts each clip's average frame, so that the model sees only what moves
            or changes; for videos only.
        train_clips: clips per epoch (synthetic only); no two epochs share one.
        val_clips: clips to validate on (synthetic only).
        test_clips: clips to test on (synthetic only); None takes `val_clips`.
        balance: draw every class equally often in training, however few videos it has; for videos
            only.
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
    center: Literal["clip"] | None = None
    train_clips: int = 4000
    val_clips: int = 400
    test_clips: int | None = None
    balance: bool = False
    workers: int = 2
    cache: str | None = None
    cache_short_side: int | None = None

    def __post_init__(self) -> None:
        names = "num_classes frames stride size short_side train_clips val_clips test_clips"
        check_range("data.", self, f"{names} cache_short_side", 1)
        check_range("data.", self, "workers", 0)
        for name in ("center", "balance"):
            if self.source == "synthetic" and getattr(self, name):
                raise ValueError(
                    f"data.{name} is for videos, got {getattr(self, name)!r} with synthetic clips"
                )


@dataclass(frozen=True, kw_only=True)
class ModelRecipe:
    """The backbone, what is selected in it, and where it starts from.

    Attributes:
        name: one of `tokenselect.list_models()`.
        plan: such as "T0_0.6-S4_0.9"; "dense" selects nothing; "any" trains one model for every
            plan of `budgets`, a random one at each step.
        budgets: plans that "any" draws from, of which the first is validated; empty takes
            `tokenselect.training.learner.DEFAULT`.
        method: "stts" or a baseline; `tokenselect.selectors.METHODS` lists them.
        scorer: "taught" (by the dense model that a run starts from; else it starts as uniform
            selection), "from-uniform", "paper", "released" or "anchor-features".
        tokenwise: select patches one by one instead of regions (paper, Table 6).
        weights: where to start from: a run's folder, a weights file of ours or of another
            framework, or the name of public weights. Dense weights serve every plan, and a
            classifier of other classes is left out.
        activation_checkpointing: recompute the blocks in the backward pass to save memory.
        compile: run the model through torch.compile.
    """

    name: str = "mvit_mini"
    plan: str = "dense"
    budgets: tuple[str, ...] = ()
    method: str = "stts"
    scorer: str = DEFAULT_SCORER
    tokenwise: bool = False
    weights: str | None = None
    activation_checkpointing: bool = False
    compile: bool = False


@dataclass(frozen=True, kw_only=True)
class AugmentationRecipe:
    """What training does to videos; the defaults are those of the released MViT configurations.

    Attributes:
        scale: smallest and largest share of the picture that a crop takes.
        ratio: narrowest and widest aspect of a crop.
        flip: probability of mirroring; 0 if left and right matter to the label.
        jitter: strength of the colour jitter; 0 for none.
        rand_augment_ops: operations of RandAugment; 0 for none.
        rand_augment_magnitude: their mean strength, of 10.
        erasing: probability of erasing a box.
        mixup: α of mixup; 0 for none.
        cutmix: α of cutmix; 0 for none.
        label_smoothing: share of the target spread over all classes.
        repeats: clips drawn from each video of a batch (repeated augmentation).
    """

    scale: tuple[float, float] = (0.08, 1.0)
    ratio: tuple[float, float] = (0.75, 1.3333)
    flip: float = 0.5
    jitter: float = 0.4
    rand_augment_ops: int = 4
    rand_augment_magnitude: float = 7.0
    erasing: float = 0.25
    mixup: float = 0.8
    cutmix: float = 1.0
    label_smoothing: float = 0.1
    repeats: int = 2

    def __post_init__(self) -> None:
        check_range("augmentation.", self, "flip erasing label_smoothing", 0, 1)
        check_range("augmentation.", self, "jitter rand_augment_ops mixup cutmix", 0)
        check_range("augmentation.", self, "rand_augment_magnitude", 0, 10)
        check_range("augmentation.", self, "repeats", 1)


@dataclass(frozen=True, kw_only=True)
class ScheduleRecipe:
    """How long, how fast, how large a batch (paper, section 4.1, MViT).

    Attributes:
        epochs: passes over the data.
        warmup_epochs: of them, those in which the learning rate rises; may be a fraction.
        batch_size: videos per step, over all processes.
        accumulation: parts that a process cuts its share into, to save memory.
        lr: highest learning rate of the selectors.
        backbone_factor: the backbone's learning rate as a multiple of that.
        taught_factor: the same for selectors that the dense model taught before the first step; at
            the full rate they would unlearn it.
        warmup_lr: learning rate of the first step.
        min_lr: learning rate of the last step.
        weight_decay: for matrices; vectors and tables have none.
        clip_norm: largest norm of the gradient; None clips nothing.
        sigma: noise of the selection at the start; it falls linearly to 0.
        sigma_end: share of the run after which it is 0; the weights then learn from hard selection.
        patience: stop after this many epochs without a better validation; None never does.
        ema: decay of the averaged weights; None keeps no average.
    """

    epochs: int = 20
    warmup_epochs: float = 3
    batch_size: int = 16
    accumulation: int = 1
    lr: float = 1e-4
    backbone_factor: float = 0.01
    taught_factor: float = 0.1
    warmup_lr: float = 1e-6
    min_lr: float = 1e-6
    weight_decay: float = 0.05
    clip_norm: float | None = 1.0
    sigma: float = 0.1
    sigma_end: float = 0.6
    patience: int | None = None
    ema: float | None = None

    def __post_init__(self) -> None:
        check_range("schedule.", self, "epochs batch_size accumulation patience", 1)
        rates = "lr backbone_factor taught_factor warmup_lr min_lr"
        check_range("schedule.", self, f"{rates} weight_decay sigma", 0)
        check_range("schedule.", self, "warmup_epochs", 0, self.epochs)
        if self.batch_size % self.accumulation:
            raise ValueError(
                f"schedule.accumulation must be a divisor of schedule.batch_size = "
                f"{self.batch_size}, got {self.accumulation}"
            )
        if not 0 < self.sigma_end <= 1:
            raise ValueError(f"schedule.sigma_end must be in (0, 1], got {self.sigma_end}")
        if self.clip_norm is not None and not self.clip_norm > 0:
            raise ValueError(
                f"schedule.clip_norm must be above 0, got {self.clip_norm}; null clips nothing"
            )
        if self.ema is not None and not 0 < self.ema < 1:
            raise ValueError(f"schedule.ema must be in (0, 1), got {self.ema}; null keeps none")
