import pytest
import torch

from tests.contracts import hosts
from tests.contracts.cuts import Cut, run_swin3d
from tokenselect import insert_selectors, record_selections, remove_selectors
from tokenselect.adapters import Arguments, find_adapter
from tokenselect.measure.cost import count_macs


@torch.no_grad()
@pytest.mark.parametrize("plan", ["S0_0.1", "S2=1x4", "S1=12x2"])
def test_swin_refuses_regions_below_its_window(plan):
    model = insert_selectors(hosts.swin3d(), plan)
    with pytest.raises(ValueError, match=r"wrong relative biases there: keep larger regions"):
        model(torch.randn(1, 3, 10, 48, 56))


@torch.no_grad()
def test_swin_keeps_fewer_frames_than_its_window_has():
    model, video = hosts.swin3d(), torch.randn(2, 3, 10, 48, 56)
    by_hand = run_swin3d(model, video, {0: Cut(frames=(4,))})
    insert_selectors(model, "T0=1", method="uniform")
    model.token_selectors["T0"].scoring.score_frames = lambda grid, keep: torch.arange(5.0)[None]
    torch.testing.assert_close(model(video), by_hand.expand(2, -1))


@torch.no_grad()
def test_swin_takes_any_input_and_counts_stages():
    model = insert_selectors(hosts.swin3d(), "T1_0.5", count_stages=True)
    assert list(model.token_selectors) == ["T2"]
    for shape in [(1, 3, 8, 64, 40), (2, 3, 12, 48, 56)]:
        with record_selections(model) as selections:
            model(torch.randn(shape))
        assert selections["T2"].thw_before[0] == shape[2] // 2


def test_mvit_counts_stages_from_where_queries_are_pooled():
    model = insert_selectors(hosts.mvit_v1(), "T0_0.6-S1_0.5", count_stages=True)
    assert list(model.token_selectors) == ["T0", "S1"]


@pytest.mark.parametrize("build", [hosts.mvit_v1, hosts.mvit_v2])
def test_mvit_refuses_too_large_a_count_before_it_runs(build):
    with pytest.raises(ValueError, match="7×4 region of a 6×4 grid"):
        insert_selectors(build(), "S2=7x4")


@torch.no_grad()
@pytest.mark.parametrize("build", [hosts.mvit_v1, hosts.mvit_v2])
def test_class_attention_of_mvit_is_the_one_the_block_computes(build):
    model, pooled, given = build(), {}, []
    block = model.blocks[2]
    block.register_forward_pre_hook(lambda _, arguments: given.append(arguments))
    for name in ("pool_q", "pool_k"):
        pool = getattr(block.attn, name)
        pool.register_forward_hook(lambda _, x, result, name=name: pooled.update({name: result}))
    model(torch.randn(2, 3, 10, 48, 32))
    (q, _), (k, thw) = pooled["pool_q"], pooled["pool_k"]
    shares = (q @ k.transpose(2, 3) * block.attn.scaler).softmax(-1)[:, :, 0, 1:].mean(1)
    adapter = find_adapter(model)
    found = adapter.class_attention(block, adapter.read(Arguments(given[0]), None))
    assert found.shape == (2, 5, 6, 4)
    torch.testing.assert_close(found[:, :, ::2, ::2], shares.reshape(2, *thw))


@torch.no_grad()
def test_mvit_selects_by_attention():
    model, video = hosts.mvit_v1(), torch.randn(2, 3, 10, 48, 32)
    insert_selectors(model, "T2=3-S2=3x2", method="attention")
    with record_selections(model) as selections:
        model(video)
    assert selections["T2"].scores.std() > 0 and selections["S2"].thw_after == (3, 3, 2)
    assert not any(module._forward_hooks for module in remove_selectors(model).modules())


def test_swin_has_no_class_token_to_attend():
    with pytest.raises(ValueError, match="needs a class token"):
        insert_selectors(hosts.swin3d(), "T2_0.5", method="attention")


@pytest.mark.slow
@pytest.mark.parametrize(
    ("name", "dense", "selected"), [("mvit_v1_b", 70.6, 38.2), ("mvit_v2_s", 64.2, 34.3)]
)
def test_the_full_size_costs_what_the_page_on_adapters_says(name, dense, selected):
    library = hosts.torchvision_video("mvit")
    with torch.device("meta"):
        model = getattr(library, name)()
    assert count_macs(model, 1, 3, 16, 224, 224).gmacs == pytest.approx(dense, abs=0.05)
    insert_selectors(model, "T0_0.6-S4_0.9", scorer="paper")
    assert count_macs(model, 1, 3, 16, 224, 224).gmacs == pytest.approx(selected, abs=0.05)
