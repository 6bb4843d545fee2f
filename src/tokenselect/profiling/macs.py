"""Multiply-adds, counted on the meta device: exact, and nothing is computed.

What the paper calls FLOPs are multiply-adds; torch's counter gives two for each. On a CPU it would
miss fused attention without a word, which is why nothing is counted there.
"""

import copy
from dataclasses import dataclass

import torch
from torch import nn
from torch.utils.flop_counter import FlopCounterMode


@dataclass(frozen=True)
class MacCount:
    """Multiply-adds of one forward.

    Attributes:
        total: of the whole model.
        by_module: of every called module by its name ("blocks.0.mlp"), children included.
    """

    total: int
    by_module: dict[str, int]

    @property
    def gmacs(self) -> float:
        """The total in units of 10⁹."""
        return self.total / 1e9


def count_macs(model: nn.Module, *shape: int) -> MacCount:
    """Count the multiply-adds of one evaluation forward.

    Args:
        model: left as it is; a copy without values is run.
        shape: of the input, batch first.
    """
    shadow = copy.deepcopy(model, _meta_memo(model)).eval()
    root = type(shadow).__name__
    with torch.no_grad(), FlopCounterMode(display=False) as counter:
        shadow(torch.empty(shape, device="meta"))
    by_module = {
        name.removeprefix(root).removeprefix("."): sum(counts.values()) // 2
        for name, counts in counter.get_flop_counts().items()
        if name != "Global"
    }
    return MacCount(counter.get_total_flops() // 2, by_module)


def _meta_memo(model: nn.Module) -> dict[int, object]:
    """Make a deep copy's memo that replaces every tensor by its shape: no weights are copied."""
    memo: dict[int, object] = {}
    for parameter in model.parameters():
        memo[id(parameter)] = nn.Parameter(
            parameter.to("meta"), requires_grad=parameter.requires_grad
        )
    for buffer in model.buffers():
        memo[id(buffer)] = buffer.to("meta")
    return memo
