"""An inserted model of another library goes wherever the untouched one could."""

import copy
import io

import pytest
import torch

from tests.contracts.models import THIRD_PARTY, Case, logits_of
from tokenselect import insert_selectors, remove_selectors

PLAN = "T0_0.6-S1_0.7"
VARIANTS = (
    "torchvision-mvit-v1",
    "timesformer-joint",
    "pytorchvideo-plain",
    "slowfast-mvit-v1",
)
COMPILED = pytest.mark.parametrize(
    "case", [case for case in THIRD_PARTY if case.name not in VARIANTS], ids=lambda case: case.name
)


@pytest.fixture(params=THIRD_PARTY, ids=lambda case: case.name)
def case(request) -> Case:
    torch.manual_seed(0)
    return request.param


def test_gradients_reach_every_parameter_and_the_scorers(case):
    model = insert_selectors(case.build(), PLAN, scorer="paper").train()
    logits_of(model(case.video())).square().sum().backward()
    used = [(n, p) for n, p in model.named_parameters() if ".predictor." not in n]
    assert [name for name, parameter in used if parameter.grad is None] == []
    for site in ("T0", "S1"):
        assert model.token_selectors[site].scoring.network.local.weight.grad.abs().max() > 0


@torch.no_grad()
def test_a_deep_copy_runs_and_is_cleaned_on_its_own(case):
    model, video = case.build(), case.video()
    dense = logits_of(model(video))
    insert_selectors(model, PLAN)
    twin = copy.deepcopy(model)
    selected = logits_of(model(video))
    assert torch.equal(logits_of(twin(video)), selected)
    assert torch.equal(logits_of(remove_selectors(twin)(video)), dense)
    assert torch.equal(logits_of(model(video)), selected)


@torch.no_grad()
def test_a_model_survives_pickling(case):
    model, video = case.build(), case.video()
    dense = logits_of(model(video))
    insert_selectors(model, PLAN)
    file = io.BytesIO()
    torch.save(model, file)
    file.seek(0)
    twin = torch.load(file, weights_only=False)
    assert torch.equal(logits_of(twin(video)), logits_of(model(video)))
    assert torch.equal(logits_of(remove_selectors(twin)(video)), dense)


@torch.no_grad()
@pytest.mark.slow
@COMPILED
def test_compiled_without_graph_breaks_it_is_the_same(case):
    model, video = insert_selectors(case.build(), PLAN), case.video()
    compiled = torch.compile(model, fullgraph=True, backend="aot_eager")
    torch.testing.assert_close(logits_of(compiled(video)), logits_of(model(video)))


@torch.no_grad()
@pytest.mark.slow
@COMPILED
def test_exported_it_is_the_same(case):
    model, video = insert_selectors(case.build(), PLAN), case.video()
    exported = torch.export.export(model, (video,)).module()
    torch.testing.assert_close(logits_of(exported(video)), logits_of(model(video)))
