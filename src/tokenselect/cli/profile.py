"""`tokenselect profile`: what a model costs, dense and selected."""

import json
from dataclasses import asdict, dataclass
from functools import partial

import torch
from rich.console import Console
from rich.progress import Progress, SpinnerColumn, TextColumn, TimeElapsedColumn
from rich.table import Table
from torch import nn

from tokenselect.adapters import Arguments
from tokenselect.grid import TokenGrid
from tokenselect.insertion import adapter_of
from tokenselect.measure.cost import count_macs, measure_latency
from tokenselect.models import create_model
from tokenselect.plan import SELECTORS, THW, SelectionPlan


@dataclass(frozen=True, kw_only=True)
class Profile:
    """The cost of one model; `gmacs` is of one view, `gmacs_total` of all of them."""

    model: str
    plan: str
    frames: int
    size: tuple[int, int]
    views: str
    params: int
    gmacs: float
    gmacs_total: float
    gmacs_dense: float
    selector_gmacs: float
    selector_params: int
    tokens: list[int]
    thw: list[THW]
    latency_ms: float | None
    latency_ms_dense: float | None


def profile(
    model: str,
    plan: str = "dense",
    frames: int | None = None,
    size: int | tuple[int, int] | None = None,
    views: str = "1x1",
    repeats: int = 5,
    json: bool = False,
) -> None:
    """Show parameters, GMACs, tokens before each block and latency of a model with a plan.

    Args:
        model: name of the model, for example mvit_b16.
        plan: selection plan, for example T0_0.6-S4_0.9.
        frames: frames of a clip; the model's own if not given.
        size: side of a frame, or height and width; the model's own if not given.
        views: temporal × spatial views of a video in testing, for example 5x1.
        repeats: timed forwards of one clip, dense and selected in turns; 0 for no timing.
        json: print JSON instead of tables.
    """
    console = Console(stderr=True)
    with Progress(SpinnerColumn(), TextColumn("{task.description}"), TimeElapsedColumn(),
                  console=console, transient=True) as progress:  # fmt: skip
        task = progress.add_task("counting multiply-adds")
        costs = profile_model(
            model,
            plan,
            frames=frames,
            size=size,
            views=views,
            repeats=repeats,
            tell=partial(progress.update, task),
        )
    if json:
        print_json(costs)
    else:
        print_tables(costs)


def profile_model(
    name: str,
    plan: str,
    *,
    frames: int | None,
    size: int | tuple[int, int] | None,
    views: str,
    repeats: int,
    tell: partial[None],
) -> Profile:
    """Count and time a model and its dense twin."""
    num_views = count_views(views)
    build = partial(create_model, name, frames=frames, size=size)
    with torch.device("meta"):
        model = build(plan=plan)
        dense = build()
    shape = (1, 3, *model.default_input)  # type: ignore[misc]
    counted = count_macs(model, *shape)
    grids = grids_before_blocks(model, shape)
    latency: dict[str, float] = {}
    if repeats:
        tell(description="timing")
        latency = time_models({"selected": build(plan=plan), "dense": build()}, shape, repeats)
    selector_params = sum(p.numel() for n, p in model.named_parameters() if n.startswith(SELECTORS))
    selector_macs = sum(
        macs
        for module, macs in counted.by_module.items()
        if module.startswith(SELECTORS) and module.count(".") == 1
    )
    return Profile(
        model=name,
        plan=str(SelectionPlan.of(plan)),
        frames=shape[2],
        size=(shape[3], shape[4]),
        views=views,
        params=sum(p.numel() for p in model.parameters()),
        gmacs=counted.gmacs,
        gmacs_total=counted.gmacs * num_views,
        gmacs_dense=count_macs(dense, *shape).gmacs,
        selector_gmacs=selector_macs / 1e9,
        selector_params=selector_params,
        tokens=[grid.tokens.shape[1] for grid in grids],
        thw=[grid.thw for grid in grids],
        latency_ms=1e3 * latency["selected"] if latency else None,
        latency_ms_dense=1e3 * latency["dense"] if latency else None,
    )


def count_views(views: str) -> int:
    """Multiply "5x1": temporal by spatial views."""
    parts = views.lower().split("x")
    if len(parts) != 2 or not all(part.isdigit() and int(part) > 0 for part in parts):
        raise ValueError(f"views must be temporal × spatial, as in 5x1, got {views!r}")
    return int(parts[0]) * int(parts[1])


def grids_before_blocks(model: nn.Module, shape: tuple[int, ...]) -> list[TokenGrid]:
    """Run a model of the meta device and note the grid that enters each block."""
    adapter = adapter_of(model)
    grids: list[TokenGrid] = []
    handles = [
        block.register_forward_pre_hook(
            lambda _, arguments: grids.append(adapter.read(Arguments(arguments), None))
        )
        for block in adapter.blocks(model)
    ]
    with torch.no_grad():
        model.eval()(torch.empty(shape, device="meta"))
    for handle in handles:
        handle.remove()
    return grids


def time_models(
    models: dict[str, nn.Module], shape: tuple[int, ...], repeats: int
) -> dict[str, float]:
    """Time one clip through each model, in turns: seconds by name."""
    clip = torch.randn(shape)
    with torch.inference_mode():
        tasks = {name: partial(model.eval(), clip) for name, model in models.items()}
        return measure_latency(tasks, repeats=repeats)


def print_json(costs: Profile) -> None:
    """Print one JSON object."""
    print(json.dumps(asdict(costs), indent=2))


def print_tables(costs: Profile) -> None:
    """Print the costs and the tokens before each block."""
    console = Console()
    height, width = costs.size
    table = Table(title=f"{costs.model}  {costs.plan}  {costs.frames}×{height}×{width}")
    for column in ("", "selected", "dense"):
        table.add_column(column, justify="left" if not column else "right")
    table.add_row("parameters", f"{costs.params:,}", f"{costs.params - costs.selector_params:,}")
    table.add_row("GMACs a view", f"{costs.gmacs:.2f}", f"{costs.gmacs_dense:.2f}")
    num_views = count_views(costs.views)
    dense_total = costs.gmacs_dense * num_views
    table.add_row(f"GMACs in {costs.views} views", f"{costs.gmacs_total:.2f}", f"{dense_total:.2f}")
    share = costs.selector_gmacs / costs.gmacs
    table.add_row("of these the selectors", f"{costs.selector_gmacs:.4f} ({share:.2%})", "")
    if costs.latency_ms is not None and costs.latency_ms_dense is not None:
        table.add_row(
            "latency of a view (ms)", f"{costs.latency_ms:.1f}", f"{costs.latency_ms_dense:.1f}"
        )
    console.print(table)
    blocks = Table("block", "frames × rows × columns", "tokens", title="tokens before each block")
    for index, (thw, tokens) in enumerate(zip(costs.thw, costs.tokens, strict=True)):
        blocks.add_row(str(index), " × ".join(map(str, thw)), f"{tokens:,}")
    console.print(blocks)
