"""The hooks that run selectors. They are plain objects, so models stay copyable and picklable."""

from collections.abc import Sequence
from dataclasses import replace
from typing import Any

from torch import Tensor, nn

from tokenselect.adapters import Adapter
from tokenselect.selectors import Selector


class AttentionProbe:
    """Forward hook on the block before a site: remembers its class token's attention."""

    def __init__(self, adapter: Adapter) -> None:
        self.adapter = adapter
        self.latest: Tensor | None = None

    def __call__(self, block: nn.Module, arguments: tuple[Any, ...], output: Any) -> None:
        """Remember the attention; the output stays as it is."""
        self.latest = self.adapter.class_attention(block, arguments)


class SiteHook:
    """Forward pre-hook on a block: passes its grid through the selectors of its sites."""

    def __init__(
        self, adapter: Adapter, selectors: Sequence[Selector], probe: AttentionProbe | None = None
    ) -> None:
        self.adapter = adapter
        self.selectors = list(selectors)
        self.probe = probe

    def __call__(self, block: nn.Module, arguments: tuple[Any, ...]) -> tuple[Any, ...]:
        """Give the block the smaller grid in place of the one it was called with."""
        grid = self.adapter.read(arguments)
        if self.probe is not None:
            grid = replace(grid, class_attention=self.probe.latest)
            self.probe.latest = None
        for selector in self.selectors:
            grid = selector(grid)
        return self.adapter.write(grid, arguments)
