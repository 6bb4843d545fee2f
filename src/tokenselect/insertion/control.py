"""What can be changed while a model runs: its plan, and σ of the smoothed Top-K."""

from typing import cast

from torch import nn

from tokenselect.insertion.grids import follow_grids
from tokenselect.insertion.insert import attach_hooks, inserted_selectors
from tokenselect.plan import SelectionPlan
from tokenselect.selectors import Selector
from tokenselect.selectors.relaxation import PerturbedTopK


def set_sigma(model: nn.Module, sigma: float) -> nn.Module:
    """Set the noise of every smoothed Top-K; the model is changed in place and given back.

    Args:
        model: with selectors; one without any stays as it is.
        sigma: at 0, training selects hard (section 3.2).
    """
    for module in model.modules():
        if isinstance(module, PerturbedTopK):
            module.set_sigma(sigma)
    return model


def set_plan(model: nn.Module, plan: SelectionPlan | str) -> nn.Module:
    """Make a model keep more or less; it is changed in place and given back.

    The selectors keep their weights. A site that the plan leaves out keeps everything and costs
    nothing; "dense" leaves all of them out. Every thread that runs the model gets the new plan, so
    wait until none does, or give each thread a copy of its own (`copy.deepcopy`).

    Args:
        model: with selectors.
        plan: other ratios or counts at the sites of the model, or at some of them.
    """
    selectors = inserted_selectors(model)
    plan = SelectionPlan.of(plan)
    unknown = [str(site) for site in plan if site.label not in selectors]
    if unknown:
        raise ValueError(
            f"plan {str(plan)!r} selects at {', '.join(unknown)}, where the model has no selector; "
            f"it has {', '.join(selectors)}"
        )
    grids = follow_grids(selectors.adapter, model, plan)  # refuses what cannot be kept
    for handle in selectors.handles:
        handle.remove()
    selectors.handles.clear()
    for site in plan:
        cast(Selector, selectors[site.label]).site = site
    selectors.plan = plan
    attach_hooks(model, selectors, grids)
    return model
