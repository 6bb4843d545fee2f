"""Insertion and removal of selectors."""

from collections.abc import Sequence
from typing import Any, cast

from torch import nn
from torch.utils.hooks import RemovableHandle

from tokenselect.adapters import Adapter, find_adapter
from tokenselect.insertion.hooks import AttentionProbe, SiteHook
from tokenselect.ops.anchors import Pair
from tokenselect.plan import SelectionPlan
from tokenselect.selectors import Selector, build_selector

CHILD = "token_selectors"


class TokenSelectors(nn.ModuleDict):
    """The selectors of a model by site, with the plan they follow and the hooks that run them.

    `settings` are the plain values of `insert_selectors` that would build them again.
    """

    def __init__(
        self, plan: SelectionPlan, selectors: dict[str, Selector], settings: dict[str, Any]
    ) -> None:
        super().__init__(selectors)
        self.plan = plan
        self.settings = settings
        self.handles: list[RemovableHandle] = []

    def before(self, block: int) -> list[Selector]:
        """List the selectors in front of one block, in the order they run."""
        return [cast(Selector, self[site.label]) for site in self.plan.before(block)]

    def extra_repr(self) -> str:
        """Show the plan in `print(model)`."""
        return f"plan={str(self.plan)!r}"


def insert_selectors(
    model: nn.Module,
    plan: SelectionPlan | str,
    *,
    method: str = "stts",
    scorer: str = "paper",
    sigma: float = 0.1,
    num_samples: int = 500,
    stride: Pair | None = None,
    is_tokenwise: bool = False,
    count_stages: bool = False,
) -> nn.Module:
    """Make a model select tokens; it is changed in place and given back.

    The selectors become the child module `token_selectors`; all other names stay as they were.

    Args:
        model: one of ours or of a supported library.
        plan: what to keep before which block, for example "T0_0.6-S4_0.9".
        method: how candidates are scored and trained; `tokenselect.selectors.METHODS` lists them.
        scorer: "paper", "anchor-features" or "released"; see `build_selector`.
        sigma: noise of the smoothed Top-K to begin with.
        num_samples: perturbations, where they are sampled.
        stride: rows and columns between anchors; None for half the free room.
        is_tokenwise: select patches one by one instead of regions.
        count_stages: the plan counts stages instead of blocks.
    """
    if selectors_of(model) is not None:
        raise ValueError("the model has selectors already: call remove_selectors(model) first")
    plan = SelectionPlan.of(plan)
    adapter = find_adapter(model)
    if count_stages:
        plan = plan.moved(adapter.stage_starts(model))
    blocks = adapter.blocks(model)
    plan.check_blocks(len(blocks))
    check_grids(adapter, model, plan)
    selectors = {
        site.label: build_selector(
            site,
            channels=adapter.channels(blocks[site.block]),
            method=method,
            scorer=scorer,
            sigma=sigma,
            num_samples=num_samples,
            stride=stride,
            is_tokenwise=is_tokenwise,
        )
        for site in plan
    }
    settings = {
        "method": method,
        "scorer": scorer,
        "num_samples": num_samples,
        "stride": stride,
        "is_tokenwise": is_tokenwise,
    }
    check_attention(adapter, blocks, list(selectors.values()))
    if selectors:
        _attach(model, adapter, TokenSelectors(plan, selectors, settings))
    return model


def remove_selectors(model: nn.Module) -> nn.Module:
    """Take the selectors and their hooks out again; a model without any is left alone."""
    selectors = selectors_of(model)
    if selectors is not None:
        for handle in selectors.handles:
            handle.remove()
        delattr(model, CHILD)
    return model


def selectors_of(model: nn.Module) -> TokenSelectors | None:
    """Give the inserted selectors, or None for a dense model."""
    return getattr(model, CHILD, None)


def check_grids(adapter: Adapter, model: nn.Module, plan: SelectionPlan) -> None:
    """Follow the grid through the model, so that a count too large is refused now, not later."""
    thw = adapter.embed_thw(model)
    if thw is None:
        return
    for index, block in enumerate(adapter.blocks(model)):
        for site in plan.before(index):
            thw = site.kept_thw(thw)
        thw = adapter.out_thw(block, thw)


def check_attention(
    adapter: Adapter, blocks: Sequence[nn.Module], selectors: Sequence[Selector]
) -> None:
    """Refuse the attention method where the block before has no class token."""
    for selector in selectors:
        if not selector.scoring.needs_class_attention:
            continue
        block = blocks[selector.site.block - 1]
        if not adapter.has_class_attention(block):
            raise ValueError(
                f"method 'attention' needs a class token, and the {type(block).__name__} before "
                f"site {selector.site} has none (N/A in the paper's Table 1)"
            )


def _attach(model: nn.Module, adapter: Adapter, selectors: TokenSelectors) -> None:
    """Make the selectors a child of the model and hook them in front of their blocks."""
    example = next(model.parameters())
    selectors.to(device=example.device, dtype=example.dtype)
    selectors.train(model.training)
    for index, block in enumerate(adapter.blocks(model)):
        here = selectors.before(index)
        if not here:
            continue
        probe = None
        if any(selector.scoring.needs_class_attention for selector in here):
            probe = AttentionProbe(adapter)
            previous = adapter.blocks(model)[index - 1]
            selectors.handles.append(previous.register_forward_hook(probe))
        selectors.handles.append(block.register_forward_pre_hook(SiteHook(adapter, here, probe)))
    model.add_module(CHILD, selectors)
