"""Recipes: all choices of a run as frozen values, read from YAML.

They stop at the builder functions (`training/build.py`): nothing below takes one.
"""

from __future__ import annotations

import copy
import functools
import json
import logging
import re
from argparse import ArgumentError
from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass, field, fields, is_dataclass, replace
from difflib import get_close_matches
from pathlib import Path
from typing import Any, Literal

import yaml
from jsonargparse import ArgumentParser

from tokenselect.data import TableLayout

logger = logging.getLogger(__name__)

RENAMED = {  # keys of version 0.1, which are still read
    "schedule.rate": "schedule.lr",
    "schedule.warmup_start": "schedule.warmup_lr",
    "schedule.end_rate": "schedule.min_lr",
    "model.is_tokenwise": "model.tokenwise",
}


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
        center: "clip" subtracts each clip's average frame, so that the model sees only what moves
            or changes; for videos only.
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
    center: Literal["clip"] | None = None
    train_clips: int = 4000
    val_clips: int = 400
    test_clips: int | None = None
    workers: int = 2
    cache: str | None = None
    cache_short_side: int | None = None


@dataclass(frozen=True, kw_only=True)
class ModelRecipe:
    """The backbone, what is selected in it, and where it starts from.

    Attributes:
        name: one of `tokenselect.list_models()`.
        plan: such as "T0_0.6-S4_0.9"; "dense" selects nothing; "any" trains one model for every
            plan of `budgets`, one of them a step.
        budgets: plans that "any" draws from, the first being the one that is validated; empty takes
            `tokenselect.training.learner.DEFAULT`.
        method: "stts" or a baseline; `tokenselect.selectors.METHODS` lists them.
        scorer: "paper", "anchor-features", "released", "from-uniform" (uniform selection with a
            learnt change) or "taught" (which `tokenselect teach` can fit to a dense model).
        tokenwise: select patches one by one instead of regions (paper, Table 6).
        weights: to start from: a run's folder, a file of ours or of another framework, or the name
            of public ones. Dense ones serve every plan, and a classifier of other classes is left
            out.
        activation_checkpointing: recompute the blocks in the backward pass to save memory.
        compile: run the model through torch.compile.
    """

    name: str = "mvit_mini"
    plan: str = "dense"
    budgets: tuple[str, ...] = ()
    method: str = "stts"
    scorer: str = "paper"
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
        flip: probability of mirroring; 0 where left and right matter to the label.
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


@dataclass(frozen=True, kw_only=True)
class ScheduleRecipe:
    """How long, how fast, how large a batch (paper, section 4.1, MViT).

    Attributes:
        epochs: passes over the data.
        warmup_epochs: of them, those in which the learning rate rises; may be a fraction.
        batch_size: videos of a step, over all processes.
        accumulation: parts that a process cuts its share into, to save memory.
        lr: highest learning rate of the selectors.
        backbone_factor: the backbone's learning rate as a multiple of that.
        warmup_lr: learning rate of the first step.
        min_lr: learning rate of the last step.
        weight_decay: of matrices; vectors and tables are spared.
        clip_norm: largest norm of the gradient; None clips nothing.
        sigma: noise of the selection at the start; it falls in a line to 0.
        sigma_end: share of the run after which it is 0; the weights then learn from hard selection.
        ema: decay of the averaged weights; None keeps no average.
    """

    epochs: int = 20
    warmup_epochs: float = 3
    batch_size: int = 16
    accumulation: int = 1
    lr: float = 1e-4
    backbone_factor: float = 0.01
    warmup_lr: float = 1e-6
    min_lr: float = 1e-6
    weight_decay: float = 0.05
    clip_norm: float | None = 1.0
    sigma: float = 0.1
    sigma_end: float = 1.0
    ema: float | None = None


@dataclass(frozen=True, kw_only=True)
class Recipe:
    """A whole run.

    Attributes:
        name: the run's folder below `runs`; "{plan}" in a recipe's file stands for the plan.
        data: clips.
        model: backbone, plan, method, starting weights.
        augmentation: of the training clips.
        schedule: epochs, learning rates, batch.
        seed: everything random in a run follows from it.
        precision: of the forward pass.
        strategy: how several processes share the work.
        device: None takes the accelerator if there is one.
        threads: of torch on the CPU; None leaves torch's choice.
        runs: folder of all runs.
        validate_every: epochs from one validation to the next; the last epoch always ends with one.
        checkpoint_minutes: a checkpoint is written this often, and after every epoch.
        checkpoint_steps: also after every so many steps; None does not count steps.
    """

    name: str
    data: DataRecipe = field(default_factory=DataRecipe)
    model: ModelRecipe = field(default_factory=ModelRecipe)
    augmentation: AugmentationRecipe = field(default_factory=AugmentationRecipe)
    schedule: ScheduleRecipe = field(default_factory=ScheduleRecipe)
    seed: int = 0
    precision: Literal["fp32", "bf16", "fp16"] = "fp32"
    strategy: Literal["ddp", "fsdp"] = "ddp"
    device: str | None = None
    threads: int | None = None
    runs: str = "runs"
    validate_every: int = 1
    checkpoint_minutes: float = 10
    checkpoint_steps: int | None = None

    @property
    def folder(self) -> Path:
        """Folder of this run."""
        return Path(self.runs) / self.name

    def to_dict(self) -> dict[str, Any]:
        """Give plain values, as JSON and YAML hold them."""
        return asdict(self)


@functools.cache  # it takes a tenth of a second
def recipe_parser() -> ArgumentParser:
    """Build the parser of a recipe's keys, with help for each."""
    parser = ArgumentParser(
        prog="tokenselect train RECIPE.yaml", exit_on_error=False, allow_abbrev=False
    )
    parser.add_argument("--config", action="config", help="YAML file with any of these keys")
    parser.add_class_arguments(Recipe)
    return parser


def read_recipe(path: str | Path, overrides: Sequence[str] = ()) -> Recipe:
    """Read a recipe; `overrides` are as on the command line, `["--schedule.epochs", "5"]`."""
    values = json.dumps(read_values(Path(path)), default=str)
    words = [rename_option(word) for word in overrides]
    parser = recipe_parser()
    try:
        parsed = parser.parse_args(["--config", values, *words])
        recipe = Recipe(**_without_config(parser.instantiate(parsed)))
    except (ArgumentError, ValueError) as error:
        raise ValueError(f"{path}: {error}") from None
    return replace(recipe, name=recipe.name.replace("{plan}", recipe.model.plan))


def recipe_from_dict(values: Mapping[str, Any]) -> Recipe:
    """Build a recipe from what `to_dict` gave, in this version or an earlier one."""
    parser = recipe_parser()
    parsed = parser.parse_object(rename_keys(values)[0])
    return Recipe(**_without_config(parser.instantiate(parsed)))


def read_values(path: Path, above: tuple[Path, ...] = ()) -> dict[str, Any]:
    """Read the keys of a recipe's file, and below them those of the recipe it names as `base`.

    Args:
        path: of the file.
        above: the recipes that have this one as their base.
    """
    if not path.is_file():
        raise FileNotFoundError(f"no recipe at {path}{suggest_recipe(path)}")
    try:
        values = yaml.safe_load(path.read_text(encoding="utf-8"))
    except (yaml.YAMLError, UnicodeDecodeError) as error:
        raise ValueError(f"{path} is no YAML file: {error}") from None
    if not isinstance(values, dict):
        raise ValueError(f"{path} must hold a recipe's keys, got {str(values)[:80]!r}")
    values, renamed = rename_keys(values)
    for old, new in renamed:
        logger.warning("%s: %s is called %s now", path, old, new)
    base = values.pop("base", None)
    check_keys(values, Recipe, path)
    if base is None:
        return values
    other = path.parent / str(base)
    if other in above:
        raise ValueError(f"{path}: base {base} comes back to itself")
    return merge(read_values(other, (*above, path)), values)


def base_of(path: Path) -> Path | None:
    """Give the recipe that a recipe's file names as its base, or None."""
    values = yaml.safe_load(path.read_text(encoding="utf-8"))
    base = values.get("base") if isinstance(values, dict) else None
    return None if base is None else path.parent / str(base)


def check_keys(values: object, kind: type, path: Path, section: str = "") -> None:
    """Refuse keys that a recipe, or a section of it, does not have."""
    if not isinstance(values, Mapping):
        raise ValueError(f"{path}: {section[:-1]} must hold keys and values, got {values!r}")
    known = {item.name: item for item in fields(kind)}
    for key, value in values.items():
        if key not in known:
            near = get_close_matches(str(key), known, n=1)
            hint = f"did you mean {section}{near[0]}?" if near else f"there are {', '.join(known)}"
            raise ValueError(f"{path}: {section}{key} is no key of a recipe; {hint}")
        nested = known[key].default_factory
        if isinstance(nested, type) and is_dataclass(nested):
            check_keys(value, nested, path, f"{section}{key}.")


def suggest_recipe(path: Path) -> str:
    """Name the recipe that has a missing one's row of the paper among its plans, if any."""
    match = re.fullmatch(r"(\w+?)_((?:[TS]\d+_[\d.]+-?)+)(_\w+)?", path.stem)
    other = path.with_name(f"{match[1]}.yaml") if match else path
    if match is None or not other.is_file():
        return ""
    return f"; it is a plan of {other} now: give --model.plan {match[2]}"


def merge(values: Mapping[str, Any], changes: Mapping[str, Any]) -> dict[str, Any]:
    """Put changed keys over others, section by section."""
    merged = dict(values)
    for key, value in changes.items():
        is_section = isinstance(value, Mapping) and isinstance(merged.get(key), Mapping)
        merged[key] = merge(merged[key], value) if is_section else value
    return merged


def rename_keys(values: Mapping[str, Any]) -> tuple[dict[str, Any], list[tuple[str, str]]]:
    """Give keys of version 0.1 their names of today; list those that there were."""
    found = copy.deepcopy(dict(values))
    renamed = []
    for old, new in RENAMED.items():
        (section, before), (_, after) = old.split("."), new.split(".")
        if isinstance(found.get(section), dict) and before in found[section]:
            found[section][after] = found[section].pop(before)
            renamed.append((old, new))
    return found, renamed


def rename_option(word: str) -> str:
    """Give an option of version 0.1, `--schedule.rate`, its name of today."""
    name, equals, value = word.partition("=")
    new = RENAMED.get(name.removeprefix("--"))
    if new is None or not name.startswith("--"):
        return word
    logger.warning("%s is called --%s now", name, new)
    return f"--{new}{equals}{value}"


def _without_config(values: Any) -> dict[str, Any]:
    return {key: value for key, value in vars(values).items() if key != "config"}
