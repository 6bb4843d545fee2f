"""Vision towers of language models for videos of fixed sizes: one graph, with selectors."""

import pytest
import torch
from torch import nn

from tests.adapters.test_llava import llava
from tests.contracts.language_hosts import QWENS
from tokenselect import count_tokens, insert_selectors, record_kept, vision_tower

SIZES = [(3, 6, 8), (2, 4, 6)]
PLANS = {  # whole frames; regions, whose windows differ; any tokens of a clip
    "T0=2-T3_0.5": {"method": "motion"},
    "T0=2-S2_0.5": {},
    "S1_0.5-S4_0.5": {"method": "evs"},
}


@pytest.fixture(params=QWENS)
def host(request) -> str:
    torch.manual_seed(0)
    torch.compiler.reset()
    return request.param


def same(found: tuple[torch.Tensor, ...], expected: tuple[torch.Tensor, ...]) -> None:
    for one, other in zip(found, expected, strict=True):
        torch.testing.assert_close(one, other, rtol=0, atol=2e-5)


@torch.no_grad()
def test_a_tower_of_fixed_sizes_is_the_tower(host):
    model = insert_selectors(QWENS[host](), "T0=2-S2_0.5-S4_0.5", method="motion")
    tower = vision_tower(model, SIZES)
    patches = torch.randn(tower.input_shape)
    tokens, kept, *features = tower(patches)
    with record_kept(model) as records:
        output = model.model.visual(patches, grid_thw=torch.tensor(SIZES), token_context={})
    same((tokens, *features), (output.pooler_output, *getattr(output, "deepstack_features", [])))
    first, second = records
    assert kept.tolist() == [*first.indices[0], *(second.indices[0] + 3 * 3 * 4)]
    assert len(kept) == sum(count_tokens(model, SIZES))


@torch.no_grad()
@pytest.mark.slow
@pytest.mark.parametrize("plan", PLANS)
def test_a_tower_with_selectors_is_one_graph(host, plan):
    tower = vision_tower(insert_selectors(QWENS[host](), plan, **PLANS[plan]), SIZES)
    patches = torch.randn(tower.input_shape)
    compiled = torch.compile(tower, fullgraph=True, backend="aot_eager")
    same(compiled(patches), tower(patches))


@pytest.mark.slow
def test_without_selectors_and_fixed_sizes_a_tower_breaks_its_graph(host):
    tower, sizes = QWENS[host]().model.visual, torch.tensor(SIZES)
    compiled = torch.compile(tower, fullgraph=True, backend="eager")
    with pytest.raises(RuntimeError, match="tolist"):  # of transformers' own
        compiled(torch.randn(int(sizes.prod(dim=1).sum()), 96), grid_thw=sizes)


@torch.no_grad()
@pytest.mark.slow
@pytest.mark.parametrize("name", ["onevision", "next-video"])
def test_what_llava_gives_its_language_model_is_one_graph(name):
    torch.compiler.reset()
    model = insert_selectors(llava(name), "T3=2-S3=1x2")
    tower = vision_tower(model, [(3, 4, 4)])
    frames = torch.randn(tower.input_shape)
    compiled = torch.compile(tower, fullgraph=True, backend="aot_eager")
    same(compiled(frames), tower(frames))
    assert len(tower(frames)[1]) == count_tokens(model, [(3, 4, 4)])[0]


@pytest.mark.parametrize("build", [*QWENS.values(), llava])
def test_a_tower_has_its_selectors_and_no_language_model(build):
    model = insert_selectors(build().train(), "T4=2" if build is not llava else "T3=2")
    tower = vision_tower(model, [(3, 4, 4)])
    own = {id(parameter) for parameter in tower.parameters()}
    assert {id(p) for p in model.token_selectors.parameters()} < own
    assert not own & {id(p) for p in model.model.language_model.parameters()}
    tower.eval()
    assert not any(module.training for module in model.token_selectors.modules())


def test_what_has_no_vision_tower_is_refused():
    with pytest.raises(ValueError, match="one video of fixed size, got 2"):
        vision_tower(insert_selectors(llava(), "T3=2"), [(3, 4, 4), (2, 4, 4)])
    with pytest.raises(ValueError, match="call insert_selectors"):
        vision_tower(nn.Linear(3, 2), [(3, 4, 4)])
