"""`tokenselect teach CHECKPOINT DATASET --plan T0_0.25`."""

from dataclasses import replace

import torch
from rich.console import Console

from tokenselect.checkpoints import save_model
from tokenselect.cli.options import ClipOptions
from tokenselect.cli.terminal import make_table, telling
from tokenselect.training.build import recipe_of
from tokenselect.training.teach import Shuffled, teach_selectors

FEWEST_CLIPS = 5  # clips: every fifth batch is held out


def teach(
    checkpoint: str,
    dataset: str,
    *,
    plan: str,
    options: ClipOptions,
    out: str | None = None,
    labels: bool = True,
    clips: int | None = None,
    steps: int = 600,
    batch_size: int = 16,
    seed: int = 0,
) -> None:
    """Add selectors to a trained dense model in minutes, without changing its weights.

    The scorers learn what the model loses with frames and regions drawn at random. Every fifth
    batch is held out, to decide how far each scorer is trusted against uniform selection.

    Args:
        checkpoint: a run's folder (its best), a checkpoint's folder or its weights' file.
        dataset: "train" of the model's recipe, or other clips, as `tokenselect evaluate` takes.
        plan: what to keep, for example T0_0.25 or T0_0.5-S4_0.5.
        options: how clips are found and read.
        out: folder for the model with its selectors; CHECKPOINT_PLAN if not given.
        labels: learn from the clips' labels; --labels=false uses the model's own answers.
        clips: learn from this many clips, drawn at random; None takes all.
        steps: of each scorer, half as many before its second round of choices.
        batch_size: clips per forward pass, up to 8 parts of each behind a site; fewer if there are
            fewer than five batches.
        seed: seed of all random draws.
    """
    model = options.load(checkpoint, plan="dense")
    found = options.find(model, dataset)
    count = len(found) if clips is None else min(clips, len(found))
    if count < FEWEST_CLIPS:
        raise ValueError(f"teaching needs at least {FEWEST_CLIPS} clips, got {count} of {dataset}")
    batch_size = min(batch_size, count // FEWEST_CLIPS)  # five batches, of which one is held out
    batches = Shuffled(
        found, at_most=clips, batch_size=batch_size, workers=options.workers, seed=seed
    )
    with telling("teaching") as tell, torch.random.fork_rng():
        torch.manual_seed(seed)
        lessons = teach_selectors(
            model, batches, plan=plan, uses_labels=labels, steps=steps, seed=seed, tell=tell
        )
    folder, recipe = out or f"{checkpoint.rstrip('/')}_{plan}", recipe_of(model)
    taught = replace(recipe.model, plan=plan, method="stts", scorer="taught")
    save_model(model, folder, metadata={"recipe": replace(recipe, model=taught).to_dict()})
    columns = "chance of an error", "with uniform selection", "share of uniform in the scores"
    table = make_table("site", *columns)  # the chances are those of held-out clips
    for lesson in lessons:
        losses = (f"{lesson.loss:.1%}", f"{lesson.uniform_loss:.1%}")
        table.add_row(lesson.site, *losses, f"{lesson.evenness:.0%}")
    console = Console()
    console.print(table)
    for site in (lesson.site for lesson in lessons if lesson.evenness == 1):
        console.print(f"{site}: no choice was clearly better than uniform selection.")
    print(f"written to {folder}; test it with: tokenselect evaluate {folder} test")
