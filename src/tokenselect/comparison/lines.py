"""What is compared: lines of a table, and the recipes where none is given."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from itertools import product
from pathlib import Path
from typing import Any

import yaml

from tokenselect.plan import SelectionPlan
from tokenselect.selectors import METHODS
from tokenselect.training.recipe import Recipe
from tokenselect.training.sections import (
    AugmentationRecipe,
    DataRecipe,
    ModelRecipe,
    PartRecipe,
    ScheduleRecipe,
)

ORACLE = "oracle"  # keeps what the truth says; synthetic actions only
DENSE = "dense"
START = "start"  # the dense model that all others are fine-tuned from, as it is


@dataclass(frozen=True)
class Line:
    """One line of the table; a cell is a line with a seed."""

    plan: str  # what is kept in the test
    method: str  # one of `METHODS`, "oracle", or "dense" and "start" for the line without selection
    variant: str = ""  # its name; "" for the recipe as it is
    # keys of the recipe with dots to their values: {"schedule.sigma": 0.05}
    changes: Mapping[str, Any] = field(default_factory=dict)

    def __post_init__(self) -> None:
        known = (*METHODS, ORACLE, DENSE, START)
        if self.method not in known:
            raise ValueError(f"method must be one of {', '.join(known)}, got {self.method!r}")
        object.__setattr__(self, "plan", str(SelectionPlan.of(self.plan)))

    @property
    def title(self) -> str:
        """A short name, good in a file's name."""
        return ".".join(part for part in (self.plan, self.method, self.variant) if part)


def cross(
    plans: Sequence[str],
    methods: Sequence[str],
    variants: Mapping[str, Mapping[str, Any]] | None = None,
) -> list[Line]:
    """Make a line of every plan, method and variant."""
    named = variants or {"": {}}
    return [
        Line(plan, method, name, changes)
        for plan, method, (name, changes) in product(plans, methods, named.items())
    ]


def parse_variants(text: str) -> dict[str, dict[str, Any]]:
    """Read `name:key=value,key=value` words; `base:` changes nothing.

    Returns:
        Name to the changed keys.
    """
    variants: dict[str, dict[str, Any]] = {}
    for word in text.replace(";", " ").split():
        name, colon, settings = word.partition(":")
        pairs = [pair.partition("=") for pair in settings.split(",") if pair]
        if not (name and colon) or any(not (key and equals) for key, equals, _ in pairs):
            raise ValueError(f"a variant is name:key=value,key=value, got {word!r}")
        variants[name] = {key: yaml.safe_load(value) for key, _, value in pairs}
    return variants


def read_lines(path: str | Path) -> list[Line]:
    """Read a YAML list of blocks, each a product of `plans`, `methods` and, if any, `variants`."""
    blocks = yaml.safe_load(Path(path).read_text())
    lines: list[Line] = []
    for block in blocks if isinstance(blocks, list) else [blocks]:
        wrong = set(block) - {"plans", "methods", "variants"}
        if wrong or not {"plans", "methods"} <= set(block):
            raise ValueError(
                f"{path}: a block has plans, methods and perhaps variants, got {sorted(block)}"
            )
        lines += cross(block["plans"], block["methods"], block.get("variants"))
    return list({line.title: line for line in lines}.values())  # none twice


def default_recipe(dataset: str) -> Recipe:
    """Give a fine-tuning that two cores finish: of synthetic actions, or of a folder of videos."""
    schedule = ScheduleRecipe(epochs=4, warmup_epochs=0.5, lr=2e-2, backbone_factor=0.01)
    if dataset == "synthetic":
        data = DataRecipe(size=64, train_clips=2000, val_clips=200, test_clips=800)
        augmentation = AugmentationRecipe(mixup=0.0, cutmix=0.0, label_smoothing=0.0)
    else:
        data = DataRecipe(
            source="videos",
            train=PartRecipe(annotations="train"),
            val=PartRecipe(annotations="val"),
            test=PartRecipe(annotations="test"),
            stride=None,
            size=64,
        )
        augmentation = AugmentationRecipe(
            scale=(0.5, 1.0), rand_augment_ops=0, erasing=0.0, mixup=0.0, cutmix=0.0, repeats=1
        )
    return Recipe(
        name="comparison",
        data=data,
        model=ModelRecipe(name="mvit_mini"),
        augmentation=augmentation,
        schedule=schedule,
    )


def default_dense(tuning: Recipe) -> Recipe:
    """Give the training from scratch before a fine-tuning: longer, all weights at the full lr."""
    schedule = replace(
        tuning.schedule, epochs=4 * tuning.schedule.epochs, lr=8e-4, backbone_factor=1.0
    )
    return replace(tuning, schedule=schedule)
