"""Selectors put into a model, changed there, and taken out."""

import warnings
from collections.abc import Iterable, Sequence
from importlib import import_module
from typing import Any, cast

from torch import nn

from tokenselect.adapters import Adapter, Removable, change_arguments, find_adapter
from tokenselect.adapters.huggingface import is_pretrained, rename_on_load
from tokenselect.insertion import hooks
from tokenselect.ops.anchors import Pair
from tokenselect.plan import CHILD, SelectionPlan, Site
from tokenselect.selectors import Selector, build_selector
from tokenselect.selectors.build import DEFAULT_SCORER
from tokenselect.selectors.relaxation import PerturbedTopK

NO_DATA_PARALLEL = (
    "nn.DataParallel cannot run a model with selectors: the hooks of a replica would call the "
    "selectors of the first device. Use DistributedDataParallel, one process per GPU"
)


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
        self.plan, self.adapter, self.settings = plan, adapter, settings
        self.handles: list[Removable] = []
        self.site_hooks: list[hooks.SiteHook] = []

    def _replicate_for_data_parallel(self) -> "TokenSelectors":
        raise RuntimeError(NO_DATA_PARALLEL)

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
        stride: rows and columns between anchors; None: half the room (taught: a third of that).
        tokenwise: select patches one by one instead of regions.
        count_stages: the plan counts stages instead of blocks.
        adapter: says what the arguments of the model's blocks mean; None to find it by the class of
            the model.
        is_tokenwise: the old name of `tokenwise`.
    """
    if is_tokenwise is not None:
        warnings.warn("is_tokenwise is now called tokenwise", DeprecationWarning, stacklevel=2)
        tokenwise = is_tokenwise
    if selectors_of(model) is not None:
        raise ValueError("the model has selectors already: call remove_selectors(model) first")
    plan = SelectionPlan.of(plan)
    host = host_of(model)
    if isinstance(host, nn.DataParallel):
        raise TypeError(NO_DATA_PARALLEL)
    reader = find_adapter(host) if adapter is None else adapter(host)
    if count_stages:
        plan = plan.moved(reader.stage_starts(host))
    blocks = reader.blocks(host)
    plan.check_blocks(len(blocks), has_end=True)
    grids = hooks.follow_grids(reader, host, plan)
    whole = hooks.follow_grids(reader, host, SelectionPlan())
    _check_sites(plan, grids, whole)
    settings: dict[str, Any] = {"method": method, "scorer": scorer, "num_samples": num_samples}
    settings |= {"stride": stride, "tokenwise": tokenwise}
    shared = {"sigma": sigma, "is_sequence": reader.is_sequence, **settings}
    selectors: dict[str, Selector] = {}
    for site in plan:
        is_end = site.block == len(blocks)
        width = reader.out_channels(blocks[-1]) if is_end else reader.channels(blocks[site.block])
        thw = whole[site.block].given if whole else None
        selectors[site.label] = build_selector(site, channels=width, thw=thw, **shared)
        _check_attention(reader, blocks, selectors[site.label])
    if selectors:
        example = next(host.parameters())
        inserted = TokenSelectors(plan, selectors, settings, adapter=reader)
        inserted.to(device=example.device, dtype=example.dtype).train(host.training)
        attach_hooks(host, inserted, grids)
        host.add_module(CHILD, inserted)
        save_with_adapters(model, selectors.values())
    return model


def remove_selectors(model: nn.Module) -> nn.Module:
    """Take the selectors and their hooks out again; a model without any is left alone."""
    selectors, host = selectors_of(model), host_of(model)
    if selectors is not None:
        for handle in selectors.handles:
            handle.remove()
        hooks.mark_hooked(host)
        delattr(host, CHILD)
        if hasattr(getattr(host, "config", None), CHILD):
            delattr(host.config, CHILD)
    return model


def host_of(model: nn.Module) -> nn.Module:
    """Give the model inside one of PEFT; any other is its own host."""
    inside = getattr(model, "get_base_model", None)
    return model if inside is None else cast(nn.Module, inside())


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
    return find_adapter(host_of(model)) if selectors is None else selectors.adapter


def _check_sites(
    plan: SelectionPlan, grids: Sequence[hooks.BlockGrid], whole: Sequence[hooks.BlockGrid]
) -> None:
    """Refuse frames of a model that has one, and tell of sites that drop nothing."""
    for site in plan if grids else ():
        if site.kind == "T" and whole[site.block].given[0] == 1:
            raise ValueError(
                f"site {site} selects frames, but the model has only one there: select regions "
                "(S), or first give the model more frames per clip, if it has such a setting"
            )
        given, kept = grids[site.block].given, grids[site.block].kept
        is_same = given[0] == kept[0] if site.kind == "T" else given[1:] == kept[1:]
        if is_same and site.keep != 1.0:
            t, h, w = given
            warnings.warn(
                f"site {site} keeps all of {f'{t} frames' if site.kind == 'T' else f'{h}×{w}'}: "
                "it saves nothing and cannot learn",
                stacklevel=3,
            )


def _check_attention(adapter: Adapter, blocks: Sequence[nn.Module], selector: Selector) -> None:
    """Refuse the attention method where the block before has no class token."""
    if not selector.scoring.needs_class_attention:
        return
    block, is_end = blocks[selector.site.block - 1], selector.site.block == len(blocks)
    if not (adapter.has_class_attention(block) or (is_end and adapter.reads_end_attention)):
        raise ValueError(
            f"method 'attention' needs a class token whose attention can be read, and the "
            f"{type(block).__name__} before site {selector.site} has none (N/A in the paper's "
            "Table 1)"
        )


def attach_hooks(
    model: nn.Module, selectors: TokenSelectors, grids: Sequence[hooks.BlockGrid]
) -> None:
    """Hook the selectors of the plan in front of their blocks."""
    adapter = selectors.adapter
    blocks = adapter.blocks(model)
    selectors.site_hooks.clear()
    for index in sorted({site.block for site in selectors.plan}):
        here = selectors.before(index)
        probe = None
        is_read = adapter.reads_end_attention and index == len(blocks)
        if not is_read and any(selector.scoring.needs_class_attention for selector in here):
            probe = hooks.AttentionProbe(adapter, grids[index - 1].kept if grids else None)
            before = blocks[index - 1].register_forward_hook(probe, with_kwargs=True)
            selectors.handles.append(before)
        hook = hooks.SiteHook(adapter, here, grids[index].given if grids else None, probe)
        if index == len(blocks):
            end = adapter.end(model)
            if end is not None:
                handle = end.register_forward_hook(hook.after, with_kwargs=True)
                selectors.handles.append(handle)
        else:
            selectors.handles.append(change_arguments(blocks[index], hook))
        selectors.site_hooks.append(hook)
    if selectors.plan.sites:
        kept = [grid.kept for grid in grids[: len(blocks)]]
        selectors.handles.extend(adapter.attach(model, selectors.plan, kept))
    if is_pretrained(model):
        described = {"plan": str(selectors.whole_plan), **selectors.settings}
        setattr(model.config, CHILD, described)  # transformers writes it to config.json
        selectors.handles.append(model.register_load_state_dict_pre_hook(rename_on_load))
    hooks.mark_hooked(model)


def set_sigma(model: nn.Module, sigma: float) -> nn.Module:
    """Set the noise of every smoothed Top-K; the model is changed in place and given back.

    At 0, training selects hard (section 3.2). A model without selectors stays as it is.
    """
    for module in model.modules():
        if isinstance(module, PerturbedTopK):
            module.set_sigma(sigma)
    return model


def set_plan(model: nn.Module, plan: SelectionPlan | str) -> nn.Module:
    """Make a model keep more or less; it is changed in place and given back.

    The selectors keep their weights. A site that the plan leaves out keeps everything and costs
    nothing; "dense" leaves all of them out. Every thread that runs the model gets the new plan, so
    wait until none does, or give each thread a copy of its own (`copy.deepcopy`). The plan has
    other ratios or counts at the sites of the model, or at some of them.
    """
    selectors = inserted_selectors(model)
    plan = SelectionPlan.of(plan)
    unknown = [str(site) for site in plan if site.label not in selectors]
    if unknown:
        raise ValueError(
            f"plan {str(plan)!r} selects at {', '.join(unknown)}, where the model has no selector; "
            f"it has {', '.join(selectors)}"
        )
    host = host_of(model)
    grids = hooks.follow_grids(selectors.adapter, host, plan)  # refuses what cannot be kept
    for handle in selectors.handles:
        handle.remove()
    selectors.handles.clear()
    for site in plan:
        cast(Selector, selectors[site.label]).site = site
    selectors.plan = plan
    attach_hooks(host, selectors, grids)
    return model


def save_with_adapters(model: nn.Module, selectors: Iterable[Selector]) -> None:
    """Let a PEFT model train the selectors and save them with its adapter.

    It is what `get_peft_model` does for `modules_to_save=["scoring"]` when selectors are there
    already.
    """
    configs = getattr(model, "peft_config", None)
    learned = [one for one in selectors if any(True for _ in one.scoring.parameters())]
    if configs is None or host_of(model) is model or not learned:
        return
    wrapper = import_module("peft.utils").ModulesToSaveWrapper
    for name, config in configs.items():
        config.modules_to_save = sorted({*(config.modules_to_save or ()), "scoring"})
        for selector in learned:
            if isinstance(selector.scoring, wrapper):
                selector.scoring.update(name)
            else:
                selector.scoring = wrapper(selector.scoring, name)
    for selector in learned:
        cast(Any, selector.scoring).set_adapter(cast(Any, model).active_adapter)
