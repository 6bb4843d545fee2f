import copy

import pytest
import torch

from tests.contracts.models import THIRD_PARTY, logits_of
from tokenselect import create_model, insert_selectors, record_selections, set_plan
from tokenselect.checkpoints import load_model, save_model

SIZES = {"num_classes": 5, "frames": 8, "size": 32}


def make_model(plan: str, **settings):
    torch.manual_seed(0)
    return create_model("mvit_mini", plan=plan, **SIZES, **settings).eval()


@pytest.fixture
def video():
    return torch.randn(2, 3, 8, 32, 32, generator=torch.Generator().manual_seed(1))


@torch.no_grad()
@pytest.mark.parametrize("method", ["stts", "static"])
@pytest.mark.parametrize("plan", ["T0_0.5-S2_0.3-T4_0.5", "T0=1-S2=2x3", "T4_0.75", "dense"])
def test_another_plan_is_the_model_built_with_it(plan, method, video):
    model = make_model("T0_0.75-S2_0.6-T4_0.9", method=method)
    built = make_model(plan, method=method)
    own = built.state_dict()
    built.load_state_dict({name: model.state_dict()[name] for name in own})
    model(video)
    assert torch.equal(set_plan(model, plan)(video), built(video))


@torch.no_grad()
def test_back_again_is_the_first_plan_and_sites_left_out_are_not_run(video):
    model = make_model("T0_0.5-S2_0.5")
    first = model(video)
    keys = list(model.state_dict())
    set_plan(model, "S2_0.5")
    with record_selections(model) as selections:
        model(video)
    assert list(selections) == ["S2"] and list(model.state_dict()) == keys
    assert torch.equal(set_plan(model, "T0_0.5-S2_0.5")(video), first)


@torch.no_grad()
def test_a_copy_has_a_budget_of_its_own(video):
    model = make_model("T0_0.5")
    first, other = model(video), copy.deepcopy(model)
    assert not torch.equal(set_plan(other, "T0_0.25")(video), first)
    assert torch.equal(model(video), first)


def test_saving_keeps_the_sites_that_are_left_out(tmp_path, video):
    model = make_model("T0_0.5-S2_0.5")
    with torch.no_grad():
        first = model(video)
    save_model(set_plan(model, "T0_0.5"), tmp_path)
    loaded = load_model(tmp_path)
    with torch.no_grad():
        assert torch.equal(set_plan(loaded, "T0_0.5-S2_0.5")(video), first)


def test_what_the_model_lacks_is_refused():
    with pytest.raises(ValueError, match=r"selects at S4_0\.5, where the model has no selector"):
        set_plan(make_model("T0_0.5"), "T0_0.5-S4_0.5")
    with pytest.raises(ValueError, match="asks for 9 frames"):
        set_plan(make_model("T0_0.5"), "T0=9")
    with pytest.raises(ValueError, match="no selectors"):
        set_plan(make_model("dense"), "T0_0.5")


PLAIN = [case for case in THIRD_PARTY if case.name in ("videomae", "vivit", "vjepa2")]


@torch.no_grad()
@pytest.mark.parametrize("method", ["merge", "rlt"])
@pytest.mark.parametrize("case", PLAIN, ids=lambda case: case.name)
def test_loose_tokens_go_through_a_plain_transformer(case, method):
    model, clips = case.build(), case.video()
    dense = logits_of(model(clips))
    insert_selectors(model, "T0_0.6-S1_0.5", method=method)
    assert not torch.equal(logits_of(model(clips)), dense)
    set_plan(model, "T0_1-S1_1")
    torch.testing.assert_close(logits_of(model(clips)), dense)
