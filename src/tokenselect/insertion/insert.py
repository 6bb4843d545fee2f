"""Insertion and removal of selectors."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import replace
from typing import Any, cast

from torch import Tensor, nn

from tokenselect.adapters import Adapter, Arguments, Removable, change_arguments, find_adapter
from tokenselect.grid import TokenGrid
from tokenselect.insertion.compiled_graphs import mark_hooked
from tokenselect.insertion.grids import BlockGrid, follow_grids
from tokenselect.ops.anchors import Pair
from tokenselect.plan import CHILD, THW, SelectionPlan, Site
from tokenselect.selectors import Selector, build_selector
from tokenselect.selectors.build import DEFAULT_SCORER, old_name_of


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

    Attributes:
        notes: are told the grids before and after, each patch with its position.
    """

    def __init__(
        self,
        adapter: Adapter,
        selectors: Sequence[Selector],
        thw: THW | None,
        probe: AttentionProbe | None = None,
    ) -> None:
        self.notes: list[Callable[[Sequence[TokenGrid], Sequence[TokenGrid]], None]] = []
        self.adapter = adapter
        self.selectors = list(selectors)
        self.thw = thw
        self.probe = probe

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


class EndHook:
    """Forward hook on the last block: passes what it returns through the selectors after it.

    Args:
        hook: of the site after the last block.
    """

    def __init__(self, hook: SiteHook) -> None:
        self.hook = hook

    def __call__(
        self, block: nn.Module, positional: tuple[Any, ...], named: dict[str, Any], output: Any
    ) -> Any:
        """Give the model the smaller grid in place of the one the block returned."""
        adapter = self.hook.adapter
        arguments = self.hook(adapter.after(Arguments(positional, named), output))
        return adapter.output(arguments, output)


class TokenSelectors(nn.ModuleDict):
    """The selectors of a model by site, with the plan they follow and the hooks that run them.

    `settings` are the plain values of `insert_selectors` that would build them again. `set_plan`
    may leave some sites out of the plan; their selectors stay here and are not run.
    """

    def __init__(
        self,
        plan: SelectionPlan,
        selectors: dict[str, Selector],
        settings: dict[str, Any],
        *,
        adapter: Adapter,
    ) -> None:
        super().__init__(selectors)
        self.plan = plan
        self.adapter = adapter
        self.settings = settings
        self.handles: list[Removable] = []
        self.site_hooks: list[SiteHook] = []

    def _replicate_for_data_parallel(self) -> TokenSelectors:
        raise RuntimeError(
            "nn.DataParallel cannot run a model with selectors: the hooks of a replica would call "
            "the selectors of the first device. Use DistributedDataParallel, one process per GPU"
        )

    def before(self, block: int) -> list[Selector]:
        """List the selectors in front of one block, in the order they run."""
        return [cast(Selector, self[site.label]) for site in self.plan.before(block)]

    @property
    def whole_plan(self) -> SelectionPlan:
        """The plan with the sites that are left out now, which keep everything."""
        labels = {site.label for site in self.plan}
        off = [cast(Selector, self[label]).site for label in self if label not in labels]
        return SelectionPlan((*self.plan, *(Site(site.kind, site.block, 1.0) for site in off)))

    def extra_repr(self) -> str:
        """Show the plan in `print(model)`."""
        return f"plan={str(self.plan)!r}"


def insert_selectors(
    model: nn.Module,
    plan: SelectionPlan | str,
    *,
    method: str = "stts",
    scorer: str = DEFAULT_SCORER,
    sigma: float = 0.1,
    num_samples: int = 500,
    stride: Pair | None = None,
    tokenwise: bool = False,
    count_stages: bool = False,
    adapter: type[Adapter] | None = None,
    is_tokenwise: bool | None = None,
) -> nn.Module:
    """Make a model select tokens; it is changed in place and given back.

    The selectors become the child module `token_selectors`; all other names stay as they were.

    Args:
        model: one of ours or of a supported library; `tokenselect.adapters.supported_models` lists
            them.
        plan: what to keep before which block, for example "T0_0.6-S4_0.9".
        method: how candidates are scored and trained; `tokenselect.selectors.METHODS` lists them.
        scorer: "taught", which begins as uniform selection and can be taught by a dense model,
            "from-uniform", "paper", "released" or "anchor-features"; see `build_selector`.
        sigma: noise of the smoothed Top-K to begin with.
        num_samples: perturbations, where they are sampled.
        stride: rows and columns between anchors; None for half the free room.
        tokenwise: select patches one by one instead of regions.
        count_stages: the plan counts stages instead of blocks.
        adapter: says what the arguments of the model's blocks mean; None to find it by the class of
            the model.
        is_tokenwise: the old name of `tokenwise`.
    """
    tokenwise = old_name_of("tokenwise", tokenwise, is_tokenwise)
    if selectors_of(model) is not None:
        raise ValueError("the model has selectors already: call remove_selectors(model) first")
    plan = SelectionPlan.of(plan)
    reader = find_adapter(model) if adapter is None else adapter(model)
    if count_stages:
        plan = plan.moved(reader.stage_starts(model))
    blocks = reader.blocks(model)
    plan.check_blocks(len(blocks), has_end=True)
    grids = follow_grids(reader, model, plan)
    whole = follow_grids(reader, model, SelectionPlan())
    selectors = {
        site.label: build_selector(
            site,
            channels=_channels_at(reader, blocks, site),
            method=method,
            scorer=scorer,
            sigma=sigma,
            num_samples=num_samples,
            stride=stride,
            tokenwise=tokenwise,
            thw=whole[site.block].given if whole else None,
            is_sequence=reader.is_sequence,
        )
        for site in plan
    }
    settings = {
        "method": method,
        "scorer": scorer,
        "num_samples": num_samples,
        "stride": stride,
        "tokenwise": tokenwise,
    }
    check_attention(reader, blocks, list(selectors.values()))
    if selectors:
        _attach(model, TokenSelectors(plan, selectors, settings, adapter=reader), grids)
    return model


def remove_selectors(model: nn.Module) -> nn.Module:
    """Take the selectors and their hooks out again; a model without any is left alone."""
    selectors = selectors_of(model)
    if selectors is not None:
        for handle in selectors.handles:
            handle.remove()
        mark_hooked(model)
        delattr(model, CHILD)
    return model


def selectors_of(model: nn.Module) -> TokenSelectors | None:
    """Give the inserted selectors, or None for a dense model."""
    return getattr(model, CHILD, None)


def inserted_selectors(model: nn.Module) -> TokenSelectors:
    """Give the inserted selectors; refuse a dense model."""
    selectors = selectors_of(model)
    if selectors is None:
        raise ValueError("the model has no selectors: call insert_selectors(model, plan) first")
    return selectors


def adapter_of(model: nn.Module) -> Adapter:
    """Give the adapter that the selectors were inserted with, or the one of a dense model."""
    selectors = selectors_of(model)
    return find_adapter(model) if selectors is None else selectors.adapter


def _channels_at(adapter: Adapter, blocks: Sequence[nn.Module], site: Site) -> int:
    """Give the width of the tokens at a site."""
    if site.block == len(blocks):
        return adapter.out_channels(blocks[-1])
    return adapter.channels(blocks[site.block])


def check_attention(
    adapter: Adapter, blocks: Sequence[nn.Module], selectors: Sequence[Selector]
) -> None:
    """Refuse the attention method where the block before has no class token."""
    for selector in selectors:
        if not selector.scoring.needs_class_attention:
            continue
        if adapter.reads_end_attention and selector.site.block == len(blocks):
            continue
        block = blocks[selector.site.block - 1]
        if not adapter.has_class_attention(block):
            raise ValueError(
                f"method 'attention' needs a class token whose attention can be read, and the "
                f"{type(block).__name__} before site {selector.site} has none (N/A in the paper's "
                "Table 1)"
            )


def _attach(model: nn.Module, selectors: TokenSelectors, grids: Sequence[BlockGrid]) -> None:
    """Make the selectors a child of the model and hook them in front of their blocks."""
    example = next(model.parameters())
    selectors.to(device=example.device, dtype=example.dtype)
    selectors.train(model.training)
    attach_hooks(model, selectors, grids)
    model.add_module(CHILD, selectors)


def attach_hooks(model: nn.Module, selectors: TokenSelectors, grids: Sequence[BlockGrid]) -> None:
    """Hook the selectors of the plan in front of their blocks.

    Args:
        model: without hooks of these selectors.
        selectors: with their plan.
        grids: from `follow_grids`.
    """
    adapter = selectors.adapter
    blocks = adapter.blocks(model)
    selectors.site_hooks.clear()
    for index in sorted({site.block for site in selectors.plan}):
        here = selectors.before(index)
        probe = None
        is_read = adapter.reads_end_attention and index == len(blocks)
        if not is_read and any(selector.scoring.needs_class_attention for selector in here):
            probe = AttentionProbe(adapter, grids[index - 1].kept if grids else None)
            before = blocks[index - 1].register_forward_hook(probe, with_kwargs=True)
            selectors.handles.append(before)
        hook = SiteHook(adapter, here, grids[index].given if grids else None, probe)
        if index == len(blocks):
            end = adapter.end(model)
            handle = end.register_forward_hook(EndHook(hook), with_kwargs=True)
        else:
            handle = change_arguments(blocks[index], hook)
        selectors.handles.append(handle)
        selectors.site_hooks.append(hook)
    if selectors.plan.sites:
        kept = [grid.kept for grid in grids[: len(blocks)]]
        selectors.handles.extend(adapter.attach(model, selectors.plan, kept))
    mark_hooked(model)
