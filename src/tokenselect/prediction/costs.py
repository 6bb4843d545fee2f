"""What a forward costs, with selection and without."""

from __future__ import annotations

from collections.abc import Mapping
from functools import partial

import torch
from torch import Tensor, nn

from tokenselect.adapters import find_adapter
from tokenselect.plan import THW
from tokenselect.profiling import MacCount, count_macs, measure_latency
from tokenselect.visualization.explanation import Layer

SELECTORS = "token_selectors."


def layer_costs(model: nn.Module, grids: list[THW], shape: tuple[int, ...]) -> list[Layer]:
    """Split the multiply-adds of a forward: embedding and head, then sites and blocks in order.

    Args:
        model: with or without selectors.
        grids: that entered each block.
        shape: of the input.
    """
    counted = count_macs(model, *shape)
    blocks = find_adapter(model).blocks(model)
    names = {id(module): name for name, module in model.named_modules()}
    sites = _sites_before_blocks(model)
    inside = []
    for index, (block, thw) in enumerate(zip(blocks, grids, strict=True)):
        macs = counted.by_module.get(names[id(block)], 0)
        for site in sites.get(index, []):
            of_site = counted.by_module.get(f"{SELECTORS}{site}", 0)
            inside.append(Layer(site, of_site / 1e9))
            macs -= of_site  # its hook runs inside the block's call
        inside.append(Layer(f"block {index}", macs / 1e9, thw))
    rest = counted.gmacs - sum(layer.gmacs for layer in inside)
    return [Layer("embedding, head", rest), *inside]


def _sites_before_blocks(model: nn.Module) -> dict[int, list[str]]:
    sites: dict[int, list[str]] = {}
    selectors = getattr(model, "token_selectors", None)
    for site in selectors.plan if selectors is not None else ():
        sites.setdefault(site.block, []).append(site.label)
    return sites


def count_gmacs(model: nn.Module, shape: tuple[int, ...]) -> float:
    """Count the multiply-adds of one forward in units of 10⁹."""
    counted: MacCount = count_macs(model, *shape)
    return counted.gmacs


def time_forwards(
    models: Mapping[str, nn.Module], clip: Tensor, *, repeats: int
) -> dict[str, float]:
    """Time one clip through each model, in turns: milliseconds by name."""
    with torch.inference_mode():
        tasks = {name: partial(_forward, model, clip) for name, model in models.items()}
        seconds = measure_latency(tasks, repeats=repeats)
    return {name: 1e3 * value for name, value in seconds.items()}


def _forward(model: nn.Module, clip: Tensor) -> None:
    """Run to the end: an accelerator returns before it has finished."""
    model(clip)
    if clip.device.type == "cuda":
        torch.cuda.synchronize(clip.device)
    elif clip.device.type == "mps":
        torch.mps.synchronize()
