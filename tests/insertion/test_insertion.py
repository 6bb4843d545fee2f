import copy
import io
import warnings

import pytest
import torch
from torch.utils.checkpoint import checkpoint

from tests.small_models import tiny_mvit, tiny_swin
from tokenselect import (
    create_model,
    insert_selectors,
    record_selections,
    remove_selectors,
    set_sigma,
)
from tokenselect.ops.anchors import default_stride
from tokenselect.selectors import TokenSelector

PLAN = "T0_0.6-S4_0.5"
SHAPE = (2, 3, 8, 48, 32)
MODELS = ["mvit_mini", "video_swin_mini"]


def build(name="mvit_mini", plan=PLAN, **settings):
    torch.manual_seed(0)
    model = create_model(name, num_classes=5, frames=8, size=(48, 32))
    return insert_selectors(model, plan, **settings).eval()


@pytest.fixture
def video():
    torch.manual_seed(1)
    return torch.randn(SHAPE)


@pytest.mark.parametrize("name", MODELS)
def test_gradients_reach_the_scorers_of_a_joint_plan(name, video):
    model = build(name, scorer="paper").train()
    model(video).square().sum().backward()
    for site in ("T0", "S4"):
        network = model.token_selectors[site].scoring.network
        assert network.local.weight.grad.abs().max() > 0


@pytest.mark.parametrize("name", MODELS)
@pytest.mark.parametrize("plan", ["T0_0.6", "S2_0.5", PLAN])
def test_every_parameter_gets_a_gradient(name, plan, video):
    model = build(name, plan).train()
    model(video).square().sum().backward()
    assert [n for n, p in model.named_parameters() if p.grad is None] == []


@torch.no_grad()
@pytest.mark.parametrize("name", MODELS)
def test_a_deep_copy_runs_its_own_selectors(name, video):
    model = build(name, scorer="paper")
    twin = copy.deepcopy(model)
    assert torch.equal(twin(video), model(video))
    twin.token_selectors["T0"].scoring.network.local.weight.neg_()
    twin.token_selectors["T0"].scoring.network.score.weight.neg_()
    with record_selections(twin) as changed, record_selections(model) as kept:
        twin(video)
        model(video)
    assert not torch.equal(changed["T0"].scores, kept["T0"].scores)
    remove_selectors(twin)
    assert list(kept) == ["T0", "S4"] and hasattr(model, "token_selectors")


@torch.no_grad()
def test_a_model_survives_pickling(video):
    model = build()
    file = io.BytesIO()
    torch.save(model, file)
    file.seek(0)
    twin = torch.load(file, weights_only=False)
    assert torch.equal(twin(video), model(video))
    assert not any(m._forward_pre_hooks for m in remove_selectors(twin).modules())


@torch.no_grad()
def test_a_state_dict_moves_between_models(video):
    model, twin = build(), create_model("mvit_mini", num_classes=5, frames=8, size=(48, 32))
    insert_selectors(twin, PLAN).eval().load_state_dict(model.state_dict())
    assert torch.equal(twin(video), model(video))


@torch.no_grad()
def test_selectors_follow_the_models_dtype_and_mode():
    model = create_model("mvit_mini", num_classes=5).double().eval()
    insert_selectors(model, PLAN)
    assert {p.dtype for p in model.parameters()} == {torch.float64}
    assert not any(module.training for module in model.modules())
    assert model(torch.randn(1, 3, 16, 96, 96, dtype=torch.float64)).isfinite().all()


@torch.no_grad()
@pytest.mark.slow
@pytest.mark.parametrize("build_tiny", [tiny_mvit, tiny_swin])
def test_compiled_without_graph_breaks_it_is_the_same(build_tiny):
    model = build_tiny("T0=3-S1=4x5")
    video = torch.randn(2, 3, *model.default_input)
    compiled = torch.compile(model, fullgraph=True, backend="aot_eager")
    torch.testing.assert_close(compiled(video), model(video))


@pytest.mark.parametrize("method", ["stts-exact", "stts-sampled"])
def test_activation_checkpointing_gives_the_same_gradient(method, video):
    model = build(method=method, sigma=0.05).train()
    parameters = list(model.parameters())
    torch.manual_seed(2)
    plain = torch.autograd.grad(model(video).sum(), parameters)
    torch.manual_seed(2)
    logits = checkpoint(model, video, use_reentrant=False)
    for one, two in zip(plain, torch.autograd.grad(logits.sum(), parameters), strict=True):
        torch.testing.assert_close(one, two)


@torch.no_grad()
def test_a_record_tells_what_was_kept(video):
    model = build()
    with record_selections(model) as selections:
        model(video)
    frames, regions = selections["T0"], selections["S4"]
    assert frames.thw_before == (4, 12, 8) and frames.thw_after == (2, 12, 8)
    assert frames.scores.shape == (2, 4) and frames.indices.shape == (2, 2)
    assert torch.equal(frames.indices, frames.scores.topk(2).indices.sort().values)
    assert regions.thw_before == (2, 6, 4) and regions.thw_after == (2, 4, 3)
    assert regions.indices.shape == (2, 2) and regions.corners.shape == (2, 2, 2)
    assert (regions.corners <= torch.tensor([2, 1])).all()


@torch.no_grad()
def test_recording_ends_with_its_block(video):
    model = build()
    with record_selections(model) as selections:
        pass
    model(video)
    assert selections == {}


def test_sigma_zero_trains_hard(video):
    model = build(sigma=0.1).train()
    set_sigma(model, 0.0)
    torch.testing.assert_close(model(video), model.eval()(video))


def test_sigma_is_set_everywhere():
    model = build()
    set_sigma(model, 0.03)
    assert [s.relaxation.sigma.item() for s in model.token_selectors.values()] == [
        pytest.approx(0.03),
        pytest.approx(0.03),
    ]


@torch.no_grad()
def test_attention_chooses_by_the_class_token_of_the_block_before(video):
    model = build(plan="T2_0.5-S2_0.5", method="attention")
    seen = []
    block = model.blocks[1]
    block.register_forward_hook(lambda b, arguments, _: seen.append(b.class_attention(*arguments)))
    with record_selections(model) as selections:
        model(video)
    attention = seen[0]  # (b, t, h, w)
    torch.testing.assert_close(selections["T2"].scores, attention.mean(dim=(2, 3)))
    kept = attention[torch.arange(2)[:, None], selections["T2"].indices]
    side = selections["S2"].thw_after[1:]
    anchors = torch.nn.functional.avg_pool2d(kept, side, default_stride(kept.shape[2:], side))
    torch.testing.assert_close(selections["S2"].scores, anchors.flatten(2))
    remove_selectors(model)
    assert len(block._forward_hooks) == 1  # ours is gone, the test's own stays


@torch.no_grad()
def test_stages_can_be_counted_instead_of_blocks(video):
    model = build(plan="T1_0.5", count_stages=True)
    assert list(model.token_selectors) == [f"T{model.stage_starts[1]}"]


@pytest.mark.parametrize(
    ("name", "plan", "settings", "message"),
    [
        ("mvit_mini", "T0_0.6-Q4", {}, "'Q4'"),
        ("mvit_mini", "T0_1.6", {}, r"\(0, 1\], got 1.6"),
        ("mvit_mini", "T9_0.5", {}, r"8 blocks \(0 to 7, and 8 is after the last\)"),
        ("mvit_mini", "T0=5", {}, "asks for 5 frames, but there are only 4"),
        ("mvit_mini", "T0=2-T3=3", {}, "asks for 3 frames, but there are only 2"),
        ("mvit_mini", "S4=7x4", {}, "7×4 region of a 6×4 grid"),
        ("mvit_mini", "S4_0.5", {"method": "gumbel"}, "frames only"),
        ("mvit_mini", "T0_0.5", {"method": "attention"}, "before block 0"),
        ("video_swin_mini", "T2_0.5", {"method": "attention"}, "needs a class token"),
    ],
)
def test_bad_input_is_refused_and_leaves_the_model_as_it_was(name, plan, settings, message):
    model = create_model(name, num_classes=5, frames=8, size=(48, 32))
    before = str(model)
    with pytest.raises(ValueError, match=message):
        insert_selectors(model, plan, **settings)
    assert str(model) == before
    assert not any(m._forward_pre_hooks or m._forward_hooks for m in model.modules())


def test_the_old_name_of_tokenwise_is_taken_with_a_warning():
    with pytest.warns(DeprecationWarning, match="is_tokenwise is now called tokenwise"):
        model = build(plan="S4_0.5", is_tokenwise=True)
    assert isinstance(model.token_selectors["S4"], TokenSelector)
    assert model.token_selectors.settings["tokenwise"] is True


def test_a_second_insertion_is_refused():
    with pytest.raises(ValueError, match="remove_selectors"):
        insert_selectors(build(), "T0_0.5")


def test_a_model_without_an_adapter_is_refused_by_name():
    with pytest.raises(TypeError, match=r"no adapter for torch.*Linear; supported: .*MViT"):
        insert_selectors(torch.nn.Linear(2, 2), PLAN)


def test_recording_a_dense_model_is_refused():
    model = create_model("mvit_mini")
    with pytest.raises(ValueError, match="no selectors"), record_selections(model):
        pass


@pytest.mark.parametrize("scorer", ["paper", "released", "anchor-features"])
def test_one_of_two_frames_is_learned(scorer, video):
    model = build(plan="T0=2-T2=1", scorer=scorer).train()
    model(video).square().sum().backward()
    parts = model.token_selectors["T2"].scoring.named_parameters()
    assert max(p.grad.abs().max() for name, p in parts if "bias" not in name) > 0


def test_a_site_that_keeps_all_says_so(video):
    with pytest.warns(UserWarning, match="T0_0.9 keeps all of 4 frames: it saves nothing"):
        build(plan="T0_0.9")
    with pytest.warns(UserWarning, match="S4=6x4 keeps all of 6×4"):
        build(plan="S4=6x4")
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        build(plan="T0_1.0-S1_1.0-S4_0.5")


def test_frames_of_a_model_that_has_one_are_refused():
    model = create_model("mvit_mini", frames=2, size=(48, 32))
    with pytest.raises(ValueError, match=r"T0_0\.5 selects frames, but the model has only one"):
        insert_selectors(model, "T0_0.5")
    insert_selectors(model, "S0_0.5")
