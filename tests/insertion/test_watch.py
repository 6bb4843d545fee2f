import pytest
import torch

from tests.contracts.models import OWN, THIRD_PARTY
from tokenselect import (
    create_model,
    insert_selectors,
    record_selections,
    remove_selectors,
    set_plan,
    set_sigma,
)
from tokenselect.adapters import find_adapter, lookup
from tokenselect.adapters.multiscale import OwnAdapter
from tokenselect.inference.explain import block_strides, record_clip
from tokenselect.insertion import adapter_of, watch_grids
from tokenselect.insertion.hooks import follow_grids
from tokenselect.measure.cost import layer_costs
from tokenselect.plan import SelectionPlan

CASES = pytest.mark.parametrize("case", OWN + THIRD_PARTY, ids=lambda case: case.name)


@torch.no_grad()
@CASES
@pytest.mark.parametrize("plan", ["dense", "T0=3-S1_0.7-T2=2"])
def test_the_watched_grids_are_those_of_the_plan(case, plan):
    model, video = case.build(), case.video()
    adapter = find_adapter(model)
    insert_selectors(model, plan)
    with watch_grids(model) as grids:
        model(video)
    first, *entered = grids
    thw = first
    for index, block in enumerate(adapter.blocks(model)):
        for site in SelectionPlan.of(plan).before(index):
            thw = site.kept_thw(thw)
        assert entered[index] == thw
        thw = adapter.out_thw(block, thw)
    expected = follow_grids(adapter, model, SelectionPlan.of(plan))
    assert entered == ([grid.kept for grid in expected[:-1]] or entered)


@torch.no_grad()
def test_watching_ends_with_its_block_and_follows_the_input():
    model = insert_selectors(create_model("mvit_mini", num_classes=5), "T0_0.5").eval()
    with watch_grids(model) as grids, record_selections(model) as selections:
        model(torch.randn(1, 3, 8, 64, 48))
    assert grids[0] == selections["T0"].thw_before == (4, 16, 12)
    assert grids[1] == selections["T0"].thw_after
    count = len(grids)
    model(torch.randn(1, 3, 8, 64, 48))
    assert len(grids) == count


def test_an_adapter_that_was_given_is_used_everywhere(monkeypatch):
    model = create_model("mvit_mini", num_classes=5)
    monkeypatch.setattr(lookup, "ADAPTERS", {})  # the library does not know the model
    with pytest.raises(TypeError, match="no adapter"):
        insert_selectors(model, "T0_0.5")
    insert_selectors(model, "T0_0.5", adapter=OwnAdapter).eval()
    clip = torch.randn(1, 3, *model.default_input)
    with torch.no_grad(), watch_grids(model) as grids, record_selections(model):
        model(clip)
    assert isinstance(adapter_of(model), OwnAdapter)
    assert [layer.name for layer in layer_costs(model, grids[1:], tuple(clip.shape))][1] == "T0"
    assert block_strides(model)[1] == (1, 2, 2)
    set_plan(model, "T0_0.25")
    assert record_clip(model, clip).grids[0] == (2, 16, 16)


def test_setters_give_the_model_back():
    model = create_model("mvit_mini", num_classes=5)
    assert insert_selectors(model, "T0_0.5") is model
    assert set_plan(model, "T0_0.25") is model
    assert set_sigma(model, 0.05) is model
    assert remove_selectors(model) is model
