"""The MViT backbone: shapes, sizes, what it counts, and what torch can do with it."""

import copy
import pickle

import pytest
import torch
from torch.utils.flop_counter import FlopCounterMode

from tokenselect.backbones.mvit import MViT, mvit_b16, mvit_b16_32x3, mvit_mini
from tokenselect.backbones.mvit.weights import resize_tables


def micro(**changes) -> MViT:
    values = dict(num_classes=5, frames=8, size=(32, 24), depth=3, channels=8, num_heads=2)
    values |= dict(q_strides={1: (1, 2, 2)}, kv_stride=(1, 2, 2), patch_kernel=(3, 5, 5))
    return MViT(**(values | changes))


def gmacs(model: torch.nn.Module, *, frames: int, size: int) -> float:
    with FlopCounterMode(display=False) as counter, torch.no_grad():
        model(torch.empty(1, 3, frames, size, size, device="meta"))
    return counter.get_total_flops() / 2e9


def test_b16_has_the_published_parameters_and_cost():
    with torch.device("meta"):
        model = mvit_b16().eval()
    assert sum(parameter.numel() for parameter in model.parameters()) == 36_610_672
    assert gmacs(model, frames=16, size=224) == pytest.approx(70.6, rel=0.005)


def test_b16_32x3_costs_what_its_paper_says():
    with torch.device("meta"):
        model = mvit_b16_32x3().eval()
    assert gmacs(model, frames=32, size=224) == pytest.approx(170, rel=0.005)


def test_mini_fits_two_cores():
    with torch.device("meta"):
        model = mvit_mini().eval()
    assert sum(parameter.numel() for parameter in model.parameters()) < 900_000
    assert gmacs(model, frames=16, size=64) < 0.3


def test_mini_leaves_a_region_something_to_cut_before_block_4():
    model = mvit_mini()
    thw = model.embed_thw(*model.default_input)
    for block in model.blocks[:4]:
        thw = block.out_thw(thw)
    assert thw == (8, 8, 8)


@pytest.mark.parametrize(
    ("frames", "size"), [(8, (32, 24)), (5, (32, 24)), (8, (17, 40)), (2, (4, 4))], ids=str
)
def test_any_clip_size_runs_and_the_sizes_said_are_the_sizes_made(frames, size):
    model = micro().eval()
    grid = model.embed(torch.randn(2, 3, frames, *size))
    thw = model.embed_thw(frames, *size)
    assert grid.thw == thw
    for block in model.blocks:
        grid, thw = block(grid), block.out_thw(thw)
        assert grid.thw == thw
    assert model.head(grid).shape == (2, 5)


def test_a_block_works_from_the_grid_it_is_given():
    model = micro().eval()
    grid = model.embed(torch.randn(2, 3, 8, 32, 24))
    cut = grid.with_patches(grid.patches[:, [0, 2, 3], 1:6, 2:5])
    assert model.blocks[1](model.blocks[0](cut)).thw == (3, 3, 2)


def test_position_tables_are_used_as_they_are_on_their_own_grid():
    positions = micro().positions
    space, time = resize_tables(positions.space, positions.time, (4, 8, 6))
    assert space is positions.space
    assert time is positions.time


def test_position_tables_of_another_grid_keep_their_axes():
    positions = micro().positions
    with torch.no_grad():
        positions.space[..., 0] = torch.arange(8.0)[:, None]
        positions.space[..., 1] = torch.arange(6.0)
        positions.time[..., 0] = torch.arange(4.0)
    space, time = resize_tables(positions.space, positions.time, (2, 4, 3))
    torch.testing.assert_close(space[:, 0, 0], torch.tensor([0.5, 2.5, 4.5, 6.5]))
    torch.testing.assert_close(space[0, :, 1], torch.tensor([0.5, 2.5, 4.5]))
    torch.testing.assert_close(time[:, 0], torch.tensor([0.5, 2.5]))


def test_gradients_reach_every_parameter():
    torch.manual_seed(0)  # a branch that drop path leaves out for both clips gets none
    model = micro(drop_path=0.1, dropout=0.1).train()
    model(torch.randn(2, 3, 8, 32, 24)).square().sum().backward()
    for name, parameter in model.named_parameters():
        assert parameter.grad is not None and parameter.grad.abs().sum() > 0, name


def test_gradients_in_mixed_precision_are_near_those_in_single():
    torch.manual_seed(0)
    model = mvit_mini(num_classes=3, frames=4, size=32)
    video, found = torch.randn(2, 3, 4, 32, 32), []
    for enabled in (False, True):
        model.zero_grad()
        with torch.autocast("cpu", torch.bfloat16, enabled=enabled):
            logits = model(video)
        logits.float().logsumexp(dim=1).sum().backward()
        found.append(torch.cat([p.grad.flatten() for p in model.parameters()]))
    assert torch.cosine_similarity(*found, dim=0) > 0.99


def test_drop_path_leaves_whole_clips_out_in_training_only():
    drop = micro(drop_path=0.5).blocks[-1].drop_path
    branch = torch.ones(64, 3, 2)
    kept = drop(branch)
    assert set(kept.unique().tolist()) == {0.0, 2.0}
    assert (kept == kept[:, :1, :1]).all()
    assert drop.eval()(branch) is branch


def test_a_copy_and_a_pickle_give_the_same_logits():
    model = micro().eval()
    video = torch.randn(1, 3, 8, 32, 24)
    expected = model(video)
    torch.testing.assert_close(copy.deepcopy(model)(video), expected)
    torch.testing.assert_close(pickle.loads(pickle.dumps(model))(video), expected)


def test_positions_and_class_token_are_spared_weight_decay():
    model = micro()
    names = model.no_weight_decay_names()
    assert names == {f"positions.{name}" for name in dict(model.positions.named_parameters())}
    assert names <= dict(model.named_parameters()).keys()


def test_wrong_values_are_named():
    with pytest.raises(ValueError, match=r"blocks from 1 to 2, got \[3\]"):
        micro(q_strides={3: (1, 2, 2)})
    with pytest.raises(ValueError, match="num_heads must divide channels 8, got 3"):
        micro(num_heads=3)
    with pytest.raises(ValueError, match=r"odd sides, got \(3, 2, 2\)"):
        micro(pool_kernel=(3, 2, 2))
    with pytest.raises(ValueError, match=r"got \(3, 8, 32, 24\)"):
        micro().embed(torch.randn(3, 8, 32, 24))


@pytest.mark.slow
def test_compiled_without_a_break_it_gives_the_same_logits_and_gradients():
    model = micro(depth=2).eval()
    compiled = torch.compile(model, fullgraph=True, backend="aot_eager")
    video = torch.randn(2, 3, 8, 32, 24)
    results = []
    for run in (model, compiled):
        logits = run(video)
        results.append((logits, *torch.autograd.grad(logits.sum(), list(model.parameters()))))
    torch.testing.assert_close(*results, rtol=1e-4, atol=1e-5)


@pytest.mark.slow
def test_exported_it_gives_the_same_logits_for_any_batch():
    model = micro().eval()
    batch = torch.export.Dim("batch", min=1, max=64)
    exported = torch.export.export(
        model, (torch.randn(2, 3, 8, 32, 24),), dynamic_shapes=({0: batch},)
    ).module()
    video = torch.randn(3, 3, 8, 32, 24)
    torch.testing.assert_close(exported(video), model(video), rtol=1e-4, atol=1e-5)


def test_tokens_keep_their_size_where_their_channels_double():
    torch.manual_seed(0)
    model = mvit_mini().eval()
    for block in model.blocks:
        if block.widen is not None:
            normed = torch.randn(50, block.widen.in_features)
            assert 0.7 < block.widen(normed).std() < 1.4
