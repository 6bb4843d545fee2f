"""`tokenselect compare DATASET --model NAME --plans … --methods … --seeds 3`."""

import logging
import shlex
import sys
from collections.abc import Callable, Sequence
from dataclasses import replace
from functools import partial
from pathlib import Path
from typing import Any

from rich.console import Console

from tokenselect.cli.terminal import counting, make_table
from tokenselect.comparison import compare as comparison
from tokenselect.comparison.planning import Comparison, change, cross, parse_variants, read_lines
from tokenselect.comparison.trials import Trial
from tokenselect.training import sections
from tokenselect.training.data import PARTS
from tokenselect.training.recipe import Recipe, read_recipe, recipe_from_dict


def compare(
    dataset: str,
    *,
    model: str | None = None,
    plans: str = "T0_0.5",
    methods: str = "stts-exact,random,uniform,static",
    variants: str = "",
    cells: str | None = None,
    seeds: int = 3,
    recipe: str | None = None,
    dense: str | None = None,
    epochs: int | None = None,
    out: str = "comparison",
    workers: int = 2,
    threads: int = 1,
    views: str = "1x1",
    train_free: bool = False,
    share_dense: bool = False,
    repeats: int = 15,
) -> None:
    """Compare selection methods at equal cost: a table, a paired test, accuracy against cost.

    Args:
        dataset: "synthetic", a recipe (YAML), or a folder with train/, val/ and test/ of class
            folders.
        model: name of the model, in place of the recipe's.
        plans: separated by commas.
        methods: separated by commas; "oracle", on synthetic actions, is told the truth.
        variants: changes to the recipe, "name:key=value,key=value", separated by spaces.
        cells: YAML file of blocks with plans, methods and variants, in place of those three.
        seeds: how often each cell is trained.
        recipe: YAML file of data, augmentation and schedule of the fine-tuning.
        dense: checkpoint to start from ("{seed}" in it stands for the seed), or the recipe that
            trains it; None trains it with the recipe.
        epochs: epochs of fine-tuning, in place of the recipe's.
        out: folder for all results; what is finished there is not done again.
        workers: processes at a time; 0 runs all in this one.
        threads: threads per process.
        views: clips x crops per test video.
        train_free: test each method on the unchanged dense weights, without fine-tuning.
        share_dense: train one dense model for all seeds.
        repeats: timing rounds per clip; 0 for none.
    """
    logging.basicConfig(level=logging.ERROR, stream=sys.stderr, format="%(message)s")
    tuning = choose_recipe(dataset, recipe, model=model, epochs=epochs)
    rows, columns = (text.replace(",", " ").split() for text in (plans, methods))
    wanted = Comparison(
        folder=Path(out),
        recipe=tuning,
        dense=choose_dense(dense, tuning),
        lines=read_lines(cells) if cells else cross(rows, columns, parse_variants(variants)),
        seeds=list(range(seeds)),
        is_trained=not train_free,
        shares_dense=share_dense,
        views=views,
        threads=threads,
    )
    name = "synthetic actions" if tuning.data.source == "synthetic" else Path(dataset).stem
    title = f"{tuning.model.name} on {name}"
    with counting("cells") as advance:
        found = comparison.run_comparison(
            wanted,
            title=title,
            command=shlex.join(["tokenselect", *sys.argv[1:]]),
            workers=workers,
            repeats=repeats,
            on_start=partial(tell_start, advance=advance),
            on_done=partial(tell_trial, advance=advance),
        )
    show_comparison(found, title=title)


def choose_recipe(
    dataset: str, path: str | None, *, model: str | None, epochs: int | None
) -> Recipe:
    """Find the recipe of the fine-tuning."""
    is_recipe, is_folder = Path(dataset).suffix in (".yaml", ".yml"), Path(dataset).is_dir()
    if is_recipe and path is not None:
        raise ValueError(f"dataset {dataset} is a recipe already: leave --recipe out")
    if dataset != "synthetic" and not Path(dataset).exists():
        raise ValueError(
            f"dataset must be 'synthetic', a recipe (YAML) or a folder of videos, got {dataset!r}"
        )
    file = dataset if is_recipe else path
    recipe = default_recipe(dataset) if file is None else read_recipe(file)
    root = dataset if is_folder and dataset != "synthetic" else None
    return with_values(recipe, {"data.root": root, "model.name": model, "schedule.epochs": epochs})


def default_recipe(dataset: str) -> Recipe:
    """Give a fine-tuning that two cores finish: of synthetic actions, or of a folder of videos."""
    mixing: dict[str, Any] = {"mixup": 0.0, "cutmix": 0.0}
    if dataset == "synthetic":
        data = sections.DataRecipe(size=64, train_clips=2000, val_clips=200, test_clips=800)
        augmentation = sections.AugmentationRecipe(**mixing, label_smoothing=0.0)
    else:
        parts: dict[str, Any] = {part: sections.PartRecipe(annotations=part) for part in PARTS}
        data = sections.DataRecipe(source="videos", **parts, stride=None, size=64)
        augmentation = sections.AugmentationRecipe(
            scale=(0.5, 1.0), rand_augment_ops=0, erasing=0.0, repeats=1, **mixing
        )
    schedule = sections.ScheduleRecipe(epochs=4, warmup_epochs=0.5, lr=2e-2, backbone_factor=0.01)
    return Recipe(name="comparison", data=data, augmentation=augmentation, schedule=schedule)


def choose_dense(dense: str | None, tuning: Recipe) -> Recipe | str:
    """Find the recipe or the checkpoint that all cells start from."""
    if dense is None:  # from scratch: longer, all weights at the full lr
        epochs = 4 * tuning.schedule.epochs
        schedule = replace(tuning.schedule, epochs=epochs, lr=8e-4, backbone_factor=1.0)
        return replace(tuning, schedule=schedule)
    if Path(dense).suffix not in (".yaml", ".yml"):
        return dense
    recipe = read_recipe(dense)
    root = recipe.data.root or tuning.data.root
    return with_values(recipe, {"model.name": tuning.model.name, "data.root": root})


def with_values(recipe: Recipe, changes: dict[str, Any]) -> Recipe:
    """Change keys of a recipe, where there is something to change them to."""
    values = recipe.to_dict()
    for key, value in changes.items():
        if value is not None:
            change(values, key, value)
    return recipe_from_dict(values)


def tell_start(trials: Sequence[Trial], *, advance: Callable[..., None]) -> None:
    """Say how much there is to do."""
    left = sum(not trial.is_done for trial in trials)
    advance(0, left)
    if left < len(trials):
        print(f"{len(trials) - left} of {len(trials)} are done already", file=sys.stderr)


def tell_trial(trial: Trial, error: str | None, *, advance: Callable[..., None]) -> None:
    """Move the bar; what went wrong gets a line, and in a log file every cell does."""
    advance()
    if error is not None:
        print(f"failed: {trial.title}: {error}", file=sys.stderr)
    elif not sys.stderr.isatty():
        print(f"done: {trial.title}", file=sys.stderr, flush=True)


def show_comparison(found: comparison.ComparisonResult, *, title: str) -> None:
    """Print the table, the warnings and where everything is."""
    console = Console(width=None if sys.stdout.isatty() else 140)  # a file has room
    columns = comparison.column_names(found.rows)
    table = make_table(*columns, title=title, texts=2)
    for row, below in zip(found.rows, [*found.rows[1:], found.rows[-1]], strict=True):
        texts = comparison.row_texts(row, columns)
        table.add_row(*texts, end_section=row.plan != below.plan)
    console.print(table)
    console.print(comparison.describe_tested(found.rows), highlight=False)
    refused = [f"{row.plan} {row.name}: {row.refusal}" for row in found.rows if row.refusal]
    for warning in [*refused, *found.warnings]:
        console.print(f"warning: {warning}", style="yellow", markup=False, highlight=False)
    console.print("written: " + ", ".join(map(str, found.files)), highlight=False)
