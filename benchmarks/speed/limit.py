"""The machine's limit, and where the time of a forward goes beside it."""

import random
import statistics
import time
from functools import partial

import torch
from torch import Tensor, nn

from benchmarks.speed.timing import Row, build, make_clips, medians, time_rounds
from tokenselect.backbones.fast_cpu import gelu_linear
from tokenselect.insertion import selectors_of
from tokenselect.measure.cost import count_macs
from tokenselect.plan import SELECTORS

SHAPES = ((2509, 96, 384), (1568, 384, 1536), (392, 768, 3072), (6272, 512, 2048))
PLANS = ("dense", "T0_0.6-S4_0.9", "T0_0.6", "S4_0.3")


def measure_limit(repeats: int, device: torch.device) -> list[Row]:
    """Measure the rate of matrix products, the limit of all else; and what packing gives.

    "packed" has its weight in oneDNN's own layout, with bias and GELU inside the product.
    """
    rows = []
    for n, inner, columns in SHAPES:
        tokens = torch.randn(n, inner, device=device)
        layer = nn.Linear(inner, columns, device=device)
        tasks = {"product": partial(torch.mm, tokens, layer.weight.detach().t())}
        tasks["linear, GELU"] = partial(gelu_linear, tokens, layer)
        if device.type == "cpu":
            tasks["packed linear, GELU"] = _packed(layer, tokens)
        with torch.inference_mode():
            seconds = medians(time_rounds(tasks, 3 * repeats, device))
        rates = {name: n * inner * columns / took / 1e9 for name, took in seconds.items()}
        row = {"rows": n, "inner": inner, "columns": columns}
        rows.append(row | {f"{name}, GMACs/s": rate for name, rate in rates.items()})
    return rows


def _packed(layer: nn.Linear, tokens: Tensor) -> partial[Tensor]:
    operators = torch.ops.mkldnn
    weight = operators._reorder_linear_weight(layer.weight.detach(), len(tokens))
    bias = layer.bias.detach()
    return partial(operators._linear_pointwise, tokens, weight, bias, "gelu", [], "none")


def measure_blocks(repeats: int, device: torch.device) -> list[Row]:
    """Time the embedding, the selectors and groups of blocks of MViT-B16, with each plan."""
    models = {plan: build("mvit_b16", plan, device) for plan in PLANS}
    video = make_clips(models["dense"], 1, device)
    spent: dict[str, list[dict[str, float]]] = {plan: [] for plan in PLANS}
    shuffled = random.Random(0)
    for _ in range(repeats + 1):
        for plan in shuffled.sample(PLANS, len(PLANS)):
            spent[plan].append(run_in_pieces(models[plan], video))
    rows: list[Row] = []
    for plan, model in models.items():
        macs = count_pieces(model, video)
        for piece in spent[plan][0]:
            took = statistics.median(run[piece] for run in spent[plan][1:])
            if took:
                row = {"plan": plan, "piece": piece, "GMACs": macs[piece] / 1e9, "ms": 1e3 * took}
                rows.append(row)
        if plan != "dense":
            rows.append(expect_whole(rows, plan))
    return [row | {"GMACs/s": 1e3 * row["GMACs"] / row["ms"]} for row in rows]


def count_pieces(model: nn.Module, video: Tensor) -> dict[str, int]:
    """Count the multiply-adds of what `run_in_pieces` times."""
    counts = count_macs(model, *video.shape).by_module
    chosen = [count for name, count in counts.items() if name.count(".") == 1 and SELECTORS in name]
    macs = {"embedding": counts["patch"], "selectors": sum(chosen)}
    for index in range(len(model.blocks)):
        group = group_of(index)
        macs[group] = macs.get(group, 0) + counts[f"blocks.{index}"]
    return macs


def expect_whole(rows: list[Row], plan: str) -> Row:
    """Say what a plan would take if each of its pieces ran at the dense model's rate."""
    dense = {row["piece"]: row for row in rows if row["plan"] == "dense"}
    ours = [row for row in rows if row["plan"] == plan]
    took = [
        row["ms"]
        if row["piece"] not in dense
        else dense[row["piece"]]["ms"] * row["GMACs"] / dense[row["piece"]]["GMACs"]
        for row in ours
    ]
    gmacs = sum(row["GMACs"] for row in ours)
    return {"plan": plan, "piece": "all, at the dense rates", "GMACs": gmacs, "ms": sum(took)}


def group_of(block: int) -> str:
    """Name the group of blocks that a block is timed with."""
    return "blocks 0-3" if block < 4 else "blocks 4-13" if block < 14 else "blocks 14-15"


@torch.inference_mode()
def run_in_pieces(model: nn.Module, video: Tensor) -> dict[str, float]:
    """Run a forward by hand and give the seconds of its pieces."""
    selectors = selectors_of(model)
    spent = dict.fromkeys(("embedding", "selectors", *map(group_of, (0, 4, 14))), 0.0)

    def timed(piece: str, function, given):
        start = time.perf_counter()
        result = function(given)
        if video.is_cuda:
            torch.cuda.synchronize()
        spent[piece] += time.perf_counter() - start
        return result

    grid = timed("embedding", model.embed, video)
    for index, block in enumerate(model.blocks):
        for selector in selectors.before(index) if selectors else ():
            grid = timed("selectors", selector, grid)
        grid = timed(group_of(index), block.forward, grid)  # without the hooks that select
    return spent
