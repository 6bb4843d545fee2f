"""How selectors run inside a model: hooks, the grids they expect, and compiled graphs."""

from collections.abc import Callable, Sequence
from dataclasses import dataclass, field, replace
from types import MethodType
from typing import Any

from torch import Tensor, nn

from tokenselect.adapters import Adapter, Arguments
from tokenselect.adapters.adapter import Named, Positional
from tokenselect.grid import TokenGrid
from tokenselect.plan import THW, SelectionPlan
from tokenselect.selectors import Selector

Note = Callable[[Sequence[TokenGrid], Sequence[TokenGrid]], None]


@dataclass(frozen=True)
class BlockGrid:
    """What comes to a block and what its sites leave of it."""

    given: THW
    kept: THW


def follow_grids(adapter: Adapter, model: nn.Module, plan: SelectionPlan) -> list[BlockGrid]:
    """Follow the grid through a model, so that a count too large is refused now, not later.

    Gives one per block and one for the site after the last; none for a model whose usual input is
    not known.
    """
    thw = adapter.embed_thw(model)
    if thw is None:
        return []
    grids: list[BlockGrid] = []
    for index, block in enumerate((*adapter.blocks(model), None)):
        kept = thw
        for site in plan.before(index):
            kept = site.kept_thw(kept)
        grids.append(BlockGrid(thw, kept))
        thw = kept if block is None else adapter.out_thw(block, kept)
    return grids


@dataclass(eq=False)
class AttentionProbe:
    """Forward hook on the block before a site: remembers its class token's attention."""

    adapter: Adapter
    thw: THW | None
    latest: Tensor | None = None

    def __call__(self, block: nn.Module, args: Positional, kwargs: Named, output: Any) -> None:
        """Remember the attention; the output stays as it is."""
        grid = self.adapter.read(Arguments(args, kwargs), self.thw)
        self.latest = self.adapter.class_attention(block, grid)


@dataclass(eq=False)
class SiteHook:
    """Changes the arguments of a block: passes its grid through the selectors of its sites."""

    adapter: Adapter
    selectors: Sequence[Selector]
    thw: THW | None
    probe: AttentionProbe | None = None
    # are told the grids before and after, each patch with its position
    notes: list[Note] = field(default_factory=list)

    def __call__(self, arguments: Arguments) -> Arguments:
        """Give the block the smaller grid in place of the one it was called with."""
        grids = self.adapter.read_all(arguments, self.thw)
        if self.probe is not None:
            grids = [replace(grid, class_attention=self.probe.latest) for grid in grids]
            self.probe.latest = None
        if not self.notes:
            return self.adapter.write_all([self.select(grid) for grid in grids], arguments)
        kept = [self.select(grid.placed()) for grid in grids]
        for note in self.notes:
            note(grids, kept)
        return self.adapter.write_all(kept, arguments)

    def select(self, grid: TokenGrid) -> TokenGrid:
        """Pass one grid through the selectors."""
        for selector in self.selectors:
            if not (self.adapter.is_ragged and selector.site.takes_all(grid.thw)):
                grid = selector(grid)
        return grid

    def after(self, block: nn.Module, args: Positional, kwargs: Named, output: Any) -> Any:
        """Serve as forward hook of the last block: make the grid that it returned smaller."""
        arguments = self(self.adapter.after(Arguments(args, kwargs), output))
        return self.adapter.output(arguments, output)


def mark_hooked(model: nn.Module) -> None:
    """Give every module with hooks its own `forward` as an attribute, and take it from the others.

    `torch.compile` shares graphs between the models of a class and takes it that a module without
    hooks never gets any: a selected model would be given the graph of a dense one, and its logits.
    What the compiler does check, in every module that it calls, is that `forward` is the one of the
    class and not an attribute of the module. The mark is the bound method that the module has
    anyway, so that nothing else changes.
    """
    for module in model.modules():
        mark = module.__dict__.get("forward")
        if module._forward_pre_hooks or module._forward_hooks:
            if mark is None and _is_own(module.forward, module):
                module.__dict__["forward"] = module.forward
        elif mark is not None and _is_own(mark, module):
            del module.__dict__["forward"]


def _is_own(forward: object, module: nn.Module) -> bool:
    """Tell whether `forward` is what the module's class has, and not someone's replacement."""
    return isinstance(forward, MethodType) and forward == MethodType(type(module).forward, module)
