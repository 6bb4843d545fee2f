"""What is compared, and the trials of it, each with a key that its result depends on alone."""

import functools
import hashlib
import json
import os
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from itertools import product
from pathlib import Path
from typing import Any

import torch
import yaml
from torch import nn

from tokenselect.comparison.trials import Trial
from tokenselect.data.labels import shorten
from tokenselect.data.synthetic import CLASS_NAMES, SPLITS, SyntheticActions
from tokenselect.locking import write_whole
from tokenselect.measure.cost import count_macs
from tokenselect.models import create_model
from tokenselect.plan import SelectionPlan
from tokenselect.selectors import METHODS
from tokenselect.selectors.build import has_parameters, has_scorer
from tokenselect.training.build import build_model
from tokenselect.training.data import PARTS, read_part
from tokenselect.training.learner import ANY
from tokenselect.training.recipe import RENAMED_KEYS, Recipe, recipe_from_dict
from tokenselect.training.sections import DataRecipe, ModelRecipe
from tokenselect.weights.files import find_checkpoint
from tokenselect.weights.load import HEAD

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


Variants = Mapping[str, Mapping[str, Any]]  # name to the keys that it changes


def cross(
    plans: Sequence[str], methods: Sequence[str], variants: Variants | None = None
) -> list[Line]:
    """Make a line of every plan, method and variant."""
    every = product(plans, methods, (variants or {"": {}}).items())
    return [Line(plan, method, *variant) for plan, method, variant in every]


def parse_variants(text: str) -> Variants:
    """Read `name:key=value,key=value` words; `base:` changes nothing."""
    variants = {}
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
        if not {"plans", "methods"} <= set(block) <= {"plans", "methods", "variants"}:
            raise ValueError(
                f"{path}: a block has plans, methods and perhaps variants, got {sorted(block)}"
            )
        lines += cross(block["plans"], block["methods"], block.get("variants"))
    return list({line.title: line for line in lines}.values())  # none twice


@functools.cache
def mark_model(model: ModelRecipe, frames: int, size: int) -> tuple[list[str], str | None]:
    """Digest a model, dense (shapes and cost) and with its selectors, or say why it cannot be."""
    dense = create_model(model.name, num_classes=2, frames=frames, size=size)
    marks = [digest([shapes_of(dense), count_macs(dense, 1, 3, frames, size, size).total])]
    try:
        with torch.device("meta"):
            built, _ = build_model(model, class_names="ab", frames=frames, size=size)
    except ValueError as error:
        return [*marks, "none"], str(error)
    return [*marks, digest(shapes_of(built))], None


def shapes_of(model: nn.Module) -> dict[str, list[int]]:
    """Give the shapes of all weights by name."""
    return {name: list(value.shape) for name, value in model.state_dict().items()}


_marks: dict[str, str] = {}  # of clips; listing many videos takes seconds


def mark_clips(data: DataRecipe) -> str:
    """Digest the first synthetic clip of each part, or the names and labels of all videos."""
    if repr(data) in _marks:
        return _marks[repr(data)]
    if data.source == "synthetic":
        make = functools.partial(SyntheticActions, 1, frames=data.frames, size=data.size)
        pixels = b"".join(make(split=split)[0][0].numpy().tobytes() for split in SPLITS)
        mark = hashlib.sha256(pixels).hexdigest()
    else:
        parts = [read_part(data, part).samples for part in PARTS]
        mark = digest([[(Path(s.path).name, s.label, *(s.span or ())) for s in p] for p in parts])
    return _marks.setdefault(repr(data), mark)


def refuse_other_videos(data: DataRecipe, folder: Path) -> None:
    """Refuse a folder that holds results of other videos of the same names and labels."""
    if data.source == "synthetic":
        return
    paths = [sample.path for part in PARTS for sample in read_part(data, part).samples]
    now = digest([os.path.getsize(path) if os.path.isfile(path) else 0 for path in paths])
    file = folder / "videos" / mark_clips(data)[:16]
    if file.exists() and file.read_text() != now:
        raise ValueError(
            f"{folder} holds results of other videos of the same names: compare into another "
            "folder with --out, or delete this one"
        )
    file.parent.mkdir(parents=True, exist_ok=True)
    write_whole(file, now)


def digest(values: object) -> str:
    """Give a short text that differs for other values."""
    return hashlib.sha256(json.dumps(values, sort_keys=True).encode()).hexdigest()[:16]


VERSION = 2  # of how cells are trained and tested; another one makes all results anew
LOADING = ("workers", "cache", "root")
HANDLING = {  # of a run: no result depends on it
    *("name", "runs", "threads", "device"),
    *("validate_every", "checkpoint_minutes", "checkpoint_steps"),
}


@dataclass(frozen=True, kw_only=True)
class Comparison:
    """All choices of a comparison."""

    folder: Path  # takes runs, results, tables
    recipe: Recipe  # of the fine-tuning; its plan, method and seed are those of each cell
    dense: Recipe | str  # of the dense model, or a checkpoint; "{seed}" in it stands for the seed
    lines: Sequence[Line]  # what is compared
    seeds: Sequence[int]  # of every line
    is_trained: bool = True  # fine-tune every line for equally long; else test the dense weights
    shares_dense: bool = False  # train one dense model, with the first seed, for all seeds
    tunes_dense: bool = True  # fine-tune the dense model, too, as a line of its own
    views: str = "1x1"  # clips x crops of a test
    threads: int = 1  # of torch in each process

    @property
    def dense_lines(self) -> list[Line]:
        """The lines without selection that are fine-tuned like all others."""
        return [Line(DENSE, DENSE)] if self.is_trained and self.tunes_dense else []

    def __post_init__(self) -> None:
        if not self.lines or not self.seeds:
            raise ValueError("a comparison needs at least one line and one seed")
        learned = sorted({line.method for line in self.lines if has_parameters(line.method)})
        if learned and not self.is_trained:
            raise ValueError(
                f"methods {', '.join(learned)} have weights of their own, which must be "
                "trained: leave them out, or compare with training"
            )


Cells = dict[tuple[str, int], Trial]  # (line's title, seed) to the trial that tests it


def plan_trials(wanted: Comparison) -> tuple[list[Trial], Cells]:
    """List the trials, those that others need first, and which cell is whose."""
    trials: dict[str, Trial] = {}
    cells: Cells = {}
    for seed in wanted.seeds:
        start = dense_trial(wanted, seed)
        trials[start.key] = start
        cells[Line(DENSE, START).title, seed] = start
        for line in [*wanted.dense_lines, *wanted.lines]:
            made = line_trial(wanted, line, seed, start)
            known = trials.get(made.key, made)
            trials[made.key] = replace(known, results=known.results | made.results)
            cells[line.title, seed] = trials[made.key]
    return list(trials.values()), {cell: trials[trial.key] for cell, trial in cells.items()}


def dense_trial(wanted: Comparison, seed: int) -> Trial:
    """Make the trial of the dense model that a seed starts from."""
    if isinstance(wanted.dense, Recipe):
        seed = wanted.seeds[0] if wanted.shares_dense else seed
        values = placed(wanted, wanted.dense) | {"seed": seed}
        values["model"]["plan"] = DENSE
        return finish_trial(wanted, values, f"start.s{seed}", DENSE)
    values = placed(wanted, wanted.recipe)
    path = wanted.dense.format(seed=seed)
    values["model"] |= {"plan": DENSE, "weights": path}
    weights = hashlib.sha256(find_checkpoint(path).read_bytes()).hexdigest()
    trial = finish_trial(wanted, values, "start", DENSE, weights=weights, is_trained=False)
    recipe, data = recipe_from_dict(values), wanted.recipe.data
    names = CLASS_NAMES if data.source == "synthetic" else read_part(data, "train").class_names
    shape = {"frames": data.frames, "size": data.size}
    loaded = None if trial.refusal else build_model(recipe.model, class_names=names, **shape)[1]
    if loaded is None or not any(name.startswith(HEAD) for name in loaded.initial):
        return trial
    return replace(trial, refusal=f"{path} has no classifier of the classes {shorten(names)}")


def line_trial(wanted: Comparison, line: Line, seed: int, start: Trial) -> Trial:
    """Make the trial of a line's cell."""
    values = placed(wanted, wanted.recipe) | {"seed": seed}
    values["validate_every"] = values["schedule"]["epochs"]  # the last weights count
    method = "uniform" if line.method in (DENSE, ORACLE) else line.method
    values["model"] |= {"plan": line.plan, "method": method}
    for key, value in line.changes.items():
        change(values, key, value)
    model = values["model"]
    if model["plan"] == ANY and not model["budgets"]:
        model["budgets"] = sorted({x.plan for x in wanted.lines if x.variant == line.variant})
    run = Path(start.recipe["runs"]) / start.recipe["name"]
    model["weights"] = str(run / "last") if start.is_trained else start.recipe["model"]["weights"]
    parts = model["plan"], line.method, line.variant, f"s{seed}"
    title = ".".join(part for part in parts if part)
    how = {"is_trained": wanted.is_trained, "is_oracle": line.method == ORACLE}
    trial = finish_trial(wanted, values, title, line.plan, weights=start.key, **how)
    if not wanted.is_trained and trial.refusal is None:
        trial = replace(trial, refusal=start.refusal)
    return replace(trial, needs=start.key)


def placed(wanted: Comparison, recipe: Recipe) -> dict[str, Any]:
    """Give a recipe's plain values with what no result depends on set for a cell."""
    values = recipe.to_dict() | {"runs": str(wanted.folder / "runs"), "threads": wanted.threads}
    values["data"]["workers"] = 0  # one process a cell
    return values


def change(values: dict[str, Any], key: str, value: Any) -> None:
    """Set a key with dots in nested values."""
    *folders, name = RENAMED_KEYS.get(key, key).split(".")
    place = values
    for folder in folders:
        place = place.get(folder)  # type: ignore[assignment]
        if not isinstance(place, dict):
            raise ValueError(f"a recipe has no key {key!r}")
    if name not in place:
        raise ValueError(f"a recipe has no key {key!r}; there are {', '.join(sorted(place))}")
    place[name] = value


def finish_trial(
    wanted: Comparison,
    values: dict[str, Any],
    title: str,
    plan: str,
    *,
    weights: str | None = None,
    is_trained: bool = True,
    is_oracle: bool = False,
) -> Trial:
    """Check the recipe, name its run by its key, and say where the result goes."""
    recipe = recipe_from_dict(values)
    content = {key: value for key, value in recipe.to_dict().items() if key not in HANDLING}
    content["data"] = {k: v for k, v in content["data"].items() if k not in LOADING}
    content["model"]["weights"] = weights or content["model"]["weights"]
    if not has_scorer(recipe.model.method) or recipe.model.plan == DENSE:
        content["model"]["scorer"] = "paper"  # nothing depends on it
    if content["model"]["scorer"] != "taught":
        content["schedule"].pop("taught_factor", None)
    model = replace(recipe.model, weights=None, budgets=tuple(recipe.model.budgets))
    marks, refusal = mark_model(model, recipe.data.frames, recipe.data.size)
    marks = [*marks, mark_clips(recipe.data)]  # tell what has the same name from before
    key = digest([VERSION, marks, content, is_trained, is_oracle, wanted.views])[:12]
    name = f"{title}-{key}".replace("=", "")
    return Trial(
        key=key,
        title=title,
        recipe={**recipe.to_dict(), "name": name},
        results={plan: str(wanted.folder / "cells" / f"{name}@{plan}.json")},
        is_trained=is_trained,
        is_oracle=is_oracle,
        views=wanted.views,
        refusal=refusal,
    )
