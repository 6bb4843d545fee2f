"""Recipes: all choices of a run as frozen values, read from YAML.

They stop at the builder functions (`training/build.py`): nothing below takes one.
"""

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
from jsonargparse import ArgumentParser, Namespace

from tokenselect.training.sections import (
    AugmentationRecipe,
    DataRecipe,
    ModelRecipe,
    ScheduleRecipe,
    check_range,
)

logger = logging.getLogger(__name__)

RENAMED_KEYS = {  # keys of version 0.1, which are still read
    "schedule.rate": "schedule.lr",
    "schedule.warmup_start": "schedule.warmup_lr",
    "schedule.end_rate": "schedule.min_lr",
    "model.is_tokenwise": "model.tokenwise",
}


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
        threads: of torch on the CPU; None takes as many as there are idle cores.
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

    def __post_init__(self) -> None:
        check_range("", self, "threads", 1, 65_536)
        check_range("", self, "validate_every checkpoint_steps", 1)
        check_range("", self, "checkpoint_minutes", 0)
        check_range("", self, "seed", 0, 2**63 - 1)
        if not self.name or self.name in (".", ".."):
            raise ValueError(f"name must be a folder's name, got {self.name!r}")

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
        prog="tokenselect train RECIPE.yaml",
        usage="tokenselect train RECIPE.yaml [--resume] [--with-base] [--KEY VALUE …]",
        description="Train a model from a recipe; each of its keys is an option. --resume "
        "continues from the run's newest checkpoint. --with-base first trains the model that the "
        "recipe starts from.",
        exit_on_error=False,
        allow_abbrev=False,
    )
    parser.add_argument("--config", action="config", help="YAML file with any of these keys")
    parser.add_class_arguments(Recipe)
    return parser


def read_recipe(path: str | Path, overrides: Sequence[str] = ()) -> Recipe:
    """Read a recipe; `overrides` are as on the command line, `["--schedule.epochs", "5"]`."""
    values = json.dumps(read_values(Path(path)), default=str)
    words = [rename_option(word) for word in overrides]
    try:
        recipe = _make(recipe_parser().parse_args(["--config", values, *words]))
    except (ArgumentError, ValueError) as error:
        raise ValueError(f"{path}: {error}") from None
    return replace(recipe, name=recipe.name.replace("{plan}", recipe.model.plan))


def recipe_from_dict(values: Mapping[str, Any]) -> Recipe:
    """Build a recipe from what `to_dict` gave, in this version or an earlier one."""
    values = rename_keys(values)[0]
    for key in ("clip_norm", "ema"):  # 0.1 took 0 for none
        if values.get("schedule", {}).get(key) == 0:
            values["schedule"][key] = None
    if "schedule" in values:  # 0.1 let σ fall until the last step, and taught no selectors
        values["schedule"] = {"sigma_end": 1.0, "taught_factor": 1.0} | values["schedule"]
    return _make(recipe_parser().parse_object(values))


def _make(parsed: Namespace) -> Recipe:
    values = vars(recipe_parser().instantiate(parsed))
    return Recipe(**{key: value for key, value in values.items() if key != "config"})


def read_values(path: Path, above: tuple[Path, ...] = ()) -> dict[str, Any]:
    """Read the keys of a recipe's file, and below them those of the recipe it names as `base`."""
    if not path.is_file():
        raise FileNotFoundError(f"no recipe at {path}{suggest_recipe(path)}")
    try:
        values = yaml.safe_load(path.read_text(encoding="utf-8"))
    except (yaml.YAMLError, UnicodeDecodeError) as error:
        raise ValueError(f"{path} is not valid YAML: {error}") from None
    if not isinstance(values, dict):
        raise ValueError(f"{path} must hold a recipe's keys, got {str(values)[:80]!r}")
    values, renamed = rename_keys(values)
    for old, new in renamed:
        logger.warning("%s: %s is now called %s", path, old, new)
    base = values.pop("base", None)
    check_keys(values, Recipe, path)
    if base is None:
        return values
    other = path.parent / str(base)
    if other in above:
        raise ValueError(f"{path}: base {base} leads back to itself")
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
            raise ValueError(f"{path}: {section}{key} is not a key of a recipe; {hint}")
        nested = known[key].default_factory
        if isinstance(nested, type) and is_dataclass(nested):
            check_keys(value, nested, path, f"{section}{key}.")


def suggest_recipe(path: Path) -> str:
    """Name the recipe that has a missing one's row of the paper among its plans, if any."""
    match = re.fullmatch(r"(\w+?)_((?:[TS]\d+_[\d.]+-?)+)(_\w+)?", path.stem)
    other = path.with_name(f"{match[1]}.yaml") if match else path
    if match is None or not other.is_file():
        return ""
    return f"; it is now a plan of {other}: give --model.plan {match[2]}"


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
    for old, new in RENAMED_KEYS.items():
        (section, before), (_, after) = old.split("."), new.split(".")
        if isinstance(found.get(section), dict) and before in found[section]:
            found[section][after] = found[section].pop(before)
            renamed.append((old, new))
    return found, renamed


def rename_option(word: str) -> str:
    """Give an option of version 0.1, `--schedule.rate`, its name of today."""
    name, equals, value = word.partition("=")
    new = RENAMED_KEYS.get(name.removeprefix("--"))
    if new is None or not name.startswith("--"):
        return word
    logger.warning("%s is now called --%s", name, new)
    return f"--{new}{equals}{value}"
