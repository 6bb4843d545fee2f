"""`tokenselect headroom CHECKPOINT DATASET --keep 3`."""

from dataclasses import asdict

from rich.console import Console

from tokenselect.cli.options import ClipOptions
from tokenselect.cli.terminal import counting, make_table, print_json
from tokenselect.measure.headroom import measure_headroom
from tokenselect.training.data import single_views


def headroom(
    checkpoint: str,
    dataset: str,
    *,
    options: ClipOptions,
    keep: int | None = None,
    plan: str | None = None,
    choices: int = 32,
    batch_size: int = 16,
    seed: int = 0,
    json: bool = False,
) -> None:
    """Show what a choice of frames or regions could gain on a data set, before training selectors.

    Runs the unchanged dense model on many sets of frames of each clip, and compares evenly spaced
    ones, the best set for all clips, and the best for each clip.

    Args:
        checkpoint: a run's folder (its best), a checkpoint's folder or its weights' file; selectors
            in it are left out.
        dataset: "test", "val" or "train" of the model's recipe, "synthetic", or annotations.
        options: how clips are found and read.
        keep: this many token frames before block 0.
        plan: one site instead, such as T4_0.3 or S2_0.3.
        choices: sets of frames to try at most; regions are all tried.
        batch_size: videos per forward pass.
        seed: seed of the random sets.
        json: print JSON instead of a table.
    """
    if (keep is None) == (plan is None):
        raise ValueError(f"give either keep or plan, got keep={keep} and plan={plan!r}")
    model = options.load(checkpoint, plan="dense")
    clips = options.find(model, dataset)
    with counting("trying choices", len(clips)) as advance:
        views = single_views(clips.batches(batch_size, workers=options.workers))
        site = plan or f"T0={keep}"
        found = measure_headroom(
            model, views, plan=site, choices=choices, seed=seed, on_batch=advance
        )
    if json:
        return print_json({**asdict(found), "advice": found.advice})
    title = f"{found.site}: {found.num_choices} choices, {found.num_clips} clips, dense weights"
    table = make_table("kept", "top-1 %", "over uniform, 95 % interval", title=title)
    table.add_row("everything", f"{100 * found.dense:.1f}", "")
    table.add_row("uniform", f"{100 * found.uniform:.1f}", "")
    table.add_row("average over all choices", f"{100 * found.random:.1f}", "")
    for name, share, gain in (
        (f"the best for all clips {found.best}", found.fixed, found.fixed_gain),
        ("the best for each clip", found.chosen, found.chosen_gain),
    ):
        interval = f"{100 * gain.difference:+.1f} ({100 * gain.low:+.1f} to {100 * gain.high:+.1f})"
        table.add_row(name, f"{100 * share:.1f}", interval)
    console = Console()
    console.print(table)
    console.print(found.advice, markup=False)
