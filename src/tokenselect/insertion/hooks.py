"""The hooks that run selectors. They are plain objects, so models stay copyable and picklable."""

from collections.abc import Sequence
from dataclasses import replace
from typing import Any

from torch import Tensor, nn

from tokenselect.adapters import Adapter, Arguments
from tokenselect.plan import THW
from tokenselect.selectors import Selector


class AttentionProbe:
    """Forward hook on the block before a site: remembers its class token's attention.

    Args:
        adapter: reads the block's arguments.
        thw: the grid that the block works on, by the plan.
    """

    def __init__(self, adapter: Adapter, thw: THW | None) -> None:
        self.adapter = adapter
        self.thw = thw
        self.latest: Tensor | None = None

    def __call__(
        self, block: nn.Module, positional: tuple[Any, ...], named: dict[str, Any], output: Any
    ) -> None:
        """Remember the attention; the output stays as it is."""
        grid = self.adapter.read(Arguments(positional, named), self.thw)
        self.latest = self.adapter.class_attention(block, grid)


class SiteHook:
    """Changes the arguments of a block: passes its grid through the selectors of its sites.

    Args:
        adapter: reads and writes the block's arguments.
        selectors: in the order they run.
        thw: the grid before them, by the plan.
        probe: knows the class token's attention in the block before.
    """

    def __init__(
        self,
        adapter: Adapter,
        selectors: Sequence[Selector],
        thw: THW | None,
        probe: AttentionProbe | None = None,
    ) -> None:
        self.adapter = adapter
        self.selectors = list(selectors)
        self.thw = thw
        self.probe = probe

    def __call__(self, arguments: Arguments) -> Arguments:
        """Give the block the smaller grid in place of the one it was called with."""
        grid = self.adapter.read(arguments, self.thw)
        if self.probe is not None:
            grid = replace(grid, class_attention=self.probe.latest)
            self.probe.latest = None
        for selector in self.selectors:
            grid = selector(grid)
        return self.adapter.write(grid, arguments)
