"""What a forward costs: multiply-adds (counted without doing them), by layer, and milliseconds."""

from __future__ import annotations

import copy
import statistics
import time
from collections import Counter
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass
from functools import partial
from typing import Any

import torch
from torch import Tensor, nn
from torch.utils._python_dispatch import TorchDispatchMode
from torch.utils._pytree import tree_map_only
from torch.utils.flop_counter import flop_registry
from torch.utils.module_tracker import ModuleTracker

from tokenselect.insertion import adapter_of, selectors_of
from tokenselect.plan import SELECTORS, THW

PRODUCTS: dict[Any, Any] = {torch.ops.aten.addmm: torch.mm, torch.ops.aten.baddbmm: torch.bmm}
FLASH_ATTENTION = torch.ops.aten._scaled_dot_product_flash_attention
FORMULAS: dict[Any, Any] = {
    **flop_registry,
    torch.ops.aten._scaled_dot_product_flash_attention_for_cpu: flop_registry[FLASH_ATTENTION],
}


def be_silent(*_: object) -> None:
    """Take what would be told to someone who waits."""


@dataclass(frozen=True)
class MacCount:
    """Multiply-adds of one forward."""

    total: int  # of the whole model
    # by name ("blocks.0.mlp"), for modules that are called, with children
    by_module: dict[str, int]

    @property
    def gmacs(self) -> float:
        """The total in units of 10⁹."""
        return self.total / 1e9


def count_macs(model: nn.Module, *shape: int) -> MacCount:
    """Count the multiply-adds of one evaluation forward, without doing them.

    `shape` is that of the input, batch first.
    """
    kept: dict[int, Tensor] = {id(b): b if b.is_cpu else b.to("meta") for b in model.buffers()}
    for p in model.parameters():
        kept[id(p)] = p if p.is_cpu else nn.Parameter(p.to("meta"), p.requires_grad)
    device = next((t.device for t in kept.values()), None)
    shadow = copy.deepcopy(model, kept).eval()  # no weights are copied
    root, counter = type(shadow).__name__, _Counter()
    with torch.no_grad(), counter.tracker, counter:
        shadow(torch.zeros(shape, device=device))
    by_module = {
        name.removeprefix(root).removeprefix("."): flops // 2
        for name, flops in counter.flops.items()
        if name != "Global"
    }
    return MacCount(counter.flops["Global"] // 2, by_module)


class _Counter(TorchDispatchMode):
    """Counts products and convolutions, and gives zeros for them; all else is computed.

    torch's `FlopCounterMode` and most kernels of the meta device import the compiler, which takes
    longer than a small model does.
    """

    def __init__(self) -> None:
        super().__init__()
        self.tracker, self.flops = ModuleTracker(), Counter[str]()

    @classmethod
    def _should_skip_dynamo(cls) -> bool:
        return False

    def __torch_dispatch__(
        self, func: Any, types: Any, args: Any = (), kwargs: dict[str, Any] | None = None
    ) -> Any:
        kwargs, count = kwargs or {}, FORMULAS.get(func._overloadpacket)
        if count is None:
            with self:
                parts = func.decompose(*args, **kwargs)
            return func(*args, **kwargs) if parts is NotImplemented else parts
        given, named = tree_map_only(Tensor, lambda tensor: tensor.to("meta"), (args, kwargs))
        product = PRODUCTS.get(func._overloadpacket)
        result = func(*given, **named) if product is None else product(*given[1:3])
        flops = count(*args, **kwargs, out_val=result)
        self.flops.update(dict.fromkeys(self.tracker.parents, flops))
        device = next(leaf.device for leaf in args if isinstance(leaf, Tensor))
        return tree_map_only(Tensor, partial(torch.zeros_like, device=device), result)


class Timing(float):
    """The median of several runs of one thing, timed in turns with others; it knows all of them."""

    samples: tuple[float, ...]

    def __new__(cls, samples: Iterable[float]) -> Timing:
        """Take the runs in order."""
        values = tuple(samples)
        timing = super().__new__(cls, statistics.median(values))
        timing.samples = values
        return timing

    def __reduce__(self) -> tuple[type[Timing], tuple[tuple[float, ...]]]:
        return Timing, (self.samples,)

    def scaled(self, factor: float) -> Timing:
        """Give the same runs in another unit."""
        return Timing(factor * value for value in self.samples)

    @property
    def spread(self) -> float | None:
        """Half the range of the middle half of the runs; None of a single one."""
        if len(self.samples) < 2:
            return None
        low, _, high = statistics.quantiles(self.samples, n=4, method="inclusive")
        return (high - low) / 2

    def __str__(self) -> str:
        """Write the median and the spread."""
        spread = "" if self.spread is None else f" ± {self.spread:.2g}"
        return f"{float(self):.4g}{spread}"


def are_told_apart(first: Timing, second: Timing) -> bool:
    """Tell whether one of two things timed in turns is faster beyond the noise.

    In at least three turns, and in all of them but one in five, the same one must be faster.
    """
    turns = list(zip(first.samples, second.samples, strict=True))
    faster = sum(a < b for a, b in turns)
    return len(turns) >= 3 and max(faster, len(turns) - faster) >= 0.8 * len(turns)


NOISY = "noisy: these times cannot be told apart; repeat on a quiet machine or with more --repeats"


def measure_latency(
    tasks: Mapping[str, Callable[[], object]], *, repeats: int = 7, warmup: int = 1
) -> dict[str, Timing]:
    """Time each task in turns, so that a neighbour's load falls on all of them: seconds by name.

    A round times every task once; the first `warmup` rounds are not counted.
    """
    if repeats < 1:
        raise ValueError(f"repeats must be at least 1, got {repeats}")
    seconds: dict[str, list[float]] = {name: [] for name in tasks}
    for turn in range(warmup + repeats):
        for name, task in tasks.items():
            start = time.perf_counter()
            task()
            for device in range(torch.accelerator.device_count()):
                torch.accelerator.synchronize(device)  # it returns before it has finished
            if turn >= warmup:
                seconds[name].append(time.perf_counter() - start)
    return {name: Timing(values) for name, values in seconds.items()}


@dataclass(frozen=True)
class Layer:
    """Cost of a part of the model: of a block, of a site, or of all the rest."""

    name: str
    gmacs: float
    thw: THW | None = None


def layer_costs(model: nn.Module, grids: list[THW], shape: tuple[int, ...]) -> list[Layer]:
    """Split the multiply-adds of a forward: embedding and head, then sites and blocks in order.

    `grids` entered each block; `shape` is that of the input.
    """
    counted = count_macs(model, *shape)
    blocks = adapter_of(model).blocks(model)
    names = {id(module): name for name, module in model.named_modules()}
    selectors = selectors_of(model)
    inside = []
    for index, (block, thw) in enumerate(zip(blocks, grids, strict=True)):
        macs = counted.by_module.get(names[id(block)], 0)
        for site in () if selectors is None else selectors.plan.before(index):
            of_site = counted.by_module.get(f"{SELECTORS}{site.label}", 0)
            inside.append(Layer(site.label, of_site / 1e9))
            macs -= of_site  # its hook runs inside the block's call
        inside.append(Layer(f"block {index}", macs / 1e9, thw))
    rest = counted.gmacs - sum(layer.gmacs for layer in inside)
    return [Layer("embedding, head", rest), *inside]


def time_forwards(
    models: Mapping[str, Callable[[Tensor], Tensor]], clip: Tensor, *, repeats: int
) -> dict[str, Timing]:
    """Time one clip through each model, in turns: milliseconds by name."""
    with torch.inference_mode():
        tasks = {name: partial(model, clip) for name, model in models.items()}
        seconds = measure_latency(tasks, repeats=repeats)
    return {name: value.scaled(1e3) for name, value in seconds.items()}
