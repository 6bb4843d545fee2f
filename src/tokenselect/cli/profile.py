"""`tokenselect profile`: what a model costs, dense and selected."""

import math
from pathlib import Path
from types import SimpleNamespace

import torch
from rich.console import Console
from torch import nn

from tokenselect.checkpoints import info_of, load_model, plan_of, with_plan
from tokenselect.cli.options import TORCH, RuntimeOptions, best_device
from tokenselect.cli.terminal import make_table, print_json, telling
from tokenselect.data import parse_views
from tokenselect.insertion import watch_grids
from tokenselect.measure.cost import NOISY, Timing, are_told_apart, count_macs, time_forwards
from tokenselect.models import create_model
from tokenselect.plan import SELECTORS


def profile(
    model: str,
    *,
    engine: RuntimeOptions = TORCH,
    plan: str | None = None,
    frames: int | None = None,
    size: int | tuple[int, int] | None = None,
    views: str = "1x1",
    repeats: int = 5,
    device: str | None = None,
    json: bool = False,
) -> None:
    """Show parameters, GMACs, tokens before each block and latency of a model with a plan.

    Args:
        model: name of the model, for example mvit_b16; or a run's folder or a checkpoint.
        engine: what runs it for timing.
        plan: selection plan, for example T0_0.6-S4_0.9; a checkpoint's own if not given.
        frames: frames of a clip; the model's own if not given.
        size: side of a frame, or height and width; the model's own if not given.
        views: temporal × spatial views of a video in testing, for example 5x1.
        repeats: timed forwards of one clip, dense and selected in turns; 0 for no timing.
        device: for example cpu or cuda; the accelerator if there is one and none is given.
        json: print JSON instead of tables.
    """
    parse_views(views)
    if frames is not None and Path(model).exists():
        raise ValueError(f"frames are for a model by name, got {frames} and {model}")
    with telling("building the model") as tell:
        if Path(model).exists():
            selected = load_model(model, plan=plan, size=size)
        else:
            selected = create_model(model, plan=plan, frames=frames, size=size).eval()
        tell("counting multiply-adds")
        dense = with_plan(selected, "dense")
        timed: dict[str, Timing] = {}
        if repeats:
            place = device or best_device()
            models = {"selected": selected.to(place), "dense": dense.to(place)}
            open_run = engine.pick(selected, tell=tell)
            runners = {name: open_run(one) for name, one in models.items()}
            tell("timing")
            clip = torch.randn(info_of(selected).clip_rule.shape, device=place)
            timed = time_forwards(runners, clip, repeats=repeats)
        costs = count(selected.to("meta"), dense.to("meta"), views=views, timed=timed)
    if json:
        return print_json(vars(costs))
    print_costs(costs)


def count(
    model: nn.Module, dense: nn.Module, *, views: str, timed: dict[str, Timing]
) -> SimpleNamespace:
    """Count what a model on the meta device costs; `gmacs` is of one view."""
    rule = info_of(model).clip_rule
    clip = torch.empty(rule.shape, device="meta")
    with torch.no_grad(), watch_grids(model) as grids:
        prefix = model.embed(clip).num_prefix  # type: ignore[operator]
        model(clip)
    counted = count_macs(model, *rule.shape)
    own = [p.numel() for name, p in model.named_parameters() if name.startswith(SELECTORS)]
    sites = {f"{SELECTORS}{site.label}" for site in plan_of(model)}
    return SimpleNamespace(
        model=info_of(model).name,
        plan=str(plan_of(model)),
        frames=rule.frames,
        size=rule.size,
        views=views,
        params=sum(p.numel() for p in model.parameters()),
        gmacs=counted.gmacs,
        gmacs_total=counted.gmacs * math.prod(parse_views(views)),
        gmacs_dense=count_macs(dense, *rule.shape).gmacs,
        selector_gmacs=sum(counted.by_module.get(site, 0) for site in sites) / 1e9,
        selector_params=sum(own),
        tokens=[prefix + t * h * w for t, h, w in grids[1:]],
        thw=grids[1:],
        latency_ms=timed.get("selected"),
        latency_ms_dense=timed.get("dense"),
    )


def print_costs(costs: SimpleNamespace) -> None:
    """Print the costs and the tokens before each block."""
    console, (height, width) = Console(), costs.size
    title = f"{costs.model}  {costs.plan}  {costs.frames}×{height}×{width}"
    table = make_table("", "selected", "dense", title=title)
    table.add_row("parameters", f"{costs.params:,}", f"{costs.params - costs.selector_params:,}")
    table.add_row("GMACs per view", f"{costs.gmacs:.2f}", f"{costs.gmacs_dense:.2f}")
    dense_total = costs.gmacs_dense * costs.gmacs_total / costs.gmacs
    table.add_row(f"GMACs in {costs.views} views", f"{costs.gmacs_total:.2f}", f"{dense_total:.2f}")
    share = costs.selector_gmacs / costs.gmacs
    table.add_row("the selectors' share", f"{costs.selector_gmacs:.4f} ({share:.2%})", "")
    selected, dense = costs.latency_ms, costs.latency_ms_dense
    if selected is not None:
        table.add_row("ms per view", str(selected), str(dense))
        if costs.plan != "dense" and not are_told_apart(selected, dense):
            table.caption = NOISY
    console.print(table)
    columns = "block", "frames × rows × columns", "tokens"
    blocks = make_table(*columns, title="tokens before each block")
    for index, (thw, tokens) in enumerate(zip(costs.thw, costs.tokens, strict=True)):
        blocks.add_row(str(index), " × ".join(map(str, thw)), f"{tokens:,}")
    console.print(blocks)
