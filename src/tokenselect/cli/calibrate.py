"""`tokenselect calibrate`: plans that meet a budget on this machine."""

import re
from dataclasses import asdict

from rich.console import Console
from rich.markup import escape

from tokenselect.checkpoints import info_of, load_model
from tokenselect.cli.options import best_device, choose_source
from tokenselect.cli.terminal import make_table, print_json, telling
from tokenselect.inference.calibrate import Calibration, Results, calibrate_model, find_results
from tokenselect.inference.explain import find_noisy
from tokenselect.measure.cost import NOISY


def calibrate(
    model: str | None = None,
    checkpoint: str | None = None,
    target_ms: float | None = None,
    target_gmacs: float | None = None,
    results: str | None = None,
    sites: str | None = None,
    count: int = 5,
    repeats: int = 3,
    size: int | tuple[int, int] | None = None,
    device: str | None = None,
    json: bool = False,
) -> None:
    """Propose plans that meet a budget of milliseconds or GMACs per clip, the best first.

    Accuracy is expected from recorded results (of `tokenselect evaluate --output`, else the paper's
    for its models); where there are none, plans that keep more tokens come first.

    Args:
        model: name of the model, for example mvit_b16.
        checkpoint: a trained model instead of a name; only its trained sites are used.
        target_ms: at most this many milliseconds per clip, measured on this machine.
        target_gmacs: at most this many GMACs per clip.
        results: JSON files of recorded results, or folders of them, separated by commas.
        sites: where to select, for example T0,S4; the trained sites, or those that the paper
            found best, if not given.
        count: how many plans to propose.
        repeats: timed forwards of each plan in turns; 0 for none with --target-gmacs.
        size: of the frames, if not the model's own.
        device: for example cpu or cuda; the accelerator if there is one and none is given.
        json: print JSON instead of a table.
    """
    if count < 1:
        raise ValueError(f"count must be at least 1, got {count}")
    with telling("building the model") as tell:
        source, place = choose_source(model, checkpoint), device or best_device()
        loaded = load_model(source, plan="dense", size=size, device=place)
        name = info_of(loaded).name
        recorded = find_results(name, results.split(",") if results else ())
        found = calibrate_model(
            loaded,
            target_ms=target_ms,
            target_gmacs=target_gmacs,
            results=recorded,
            sites=read_sites(sites) if sites is not None else None,
            count=count,
            repeats=repeats,
            tell=tell,
        )
    if json:
        return print_json({"model": name, "results": recorded and recorded.source, **asdict(found)})
    print_table(name, found, recorded, checkpoint=checkpoint)


def read_sites(text: str) -> list[tuple[str, int]]:
    """Read "T0,S4"."""
    sites = [re.fullmatch(r"([TS])(\d+)", part.strip()) for part in text.split(",")]
    if not all(sites):
        raise ValueError(f"sites must be like T0,S4 (T or S and a block), got {text!r}")
    return [(site[1], int(site[2])) for site in sites if site]


def print_table(
    name: str, found: Calibration, recorded: Results | None, *, checkpoint: str | None
) -> None:
    """Print the proposals, the dense model below them, and a line to paste."""
    console = Console()
    table = make_table("plan", "GMACs", "ms", "tokens kept", "expected top-1", title=name)
    dense = [] if found.dense.plan in {p.plan for p in found.proposals} else [found.dense]
    for one in (*found.proposals, *dense):
        top1 = "" if one.top1 is None else f"{'' if one.is_recorded else '≈ '}{one.top1:.1f}"
        time = "" if one.milliseconds is None else str(one.milliseconds)
        if one in dense:
            table.add_section()
        figures = f"{one.gmacs:.4g}", time, f"{one.kept:.0%}", top1
        table.add_row(one.plan, *figures, style="dim" if one in dense else None)
    console.print(table)
    if recorded is None:
        console.print("No recorded results: plans that keep more tokens come first.")
    else:
        console.print(f"≈ estimated from the results of {escape(recorded.source)}.")
    plans = {one.plan: one.milliseconds for one in (found.dense, *found.proposals)}
    if noisy := find_noisy({plan: time for plan, time in plans.items() if time is not None}):
        console.print(f"{', '.join(noisy)}: {NOISY}", markup=False)
    best = found.proposals[0].plan
    line = f'tokenselect.create_model("{name}", plan="{best}")'
    if checkpoint is not None:
        line = f"tokenselect predict VIDEO --checkpoint {checkpoint} --plan {best}"
    print(line)
