import copy
import pickle

import pytest
import torch
from torch.utils.flop_counter import FlopCounterMode

from tokenselect.backbones import fast_cpu as portions
from tokenselect.backbones.video_swin import (
    VideoSwin,
    video_swin_b,
    video_swin_b_w16,
    video_swin_mini,
    video_swin_s,
    video_swin_t,
)
from tokenselect.grid import TokenGrid


def micro(**changes) -> VideoSwin:
    torch.manual_seed(0)
    arguments = {
        "num_classes": 5,
        "frames": 6,
        "size": (20, 28),
        "channels": 8,
        "depths": (2, 2),
        "num_heads": (1, 2),
        "window": (2, 3, 3),
    }
    return VideoSwin(**(arguments | changes)).eval()


def gmacs(model: VideoSwin) -> float:
    clip = torch.empty(1, 3, *model.default_input, device="meta")
    with FlopCounterMode(display=False) as counter, torch.no_grad():
        model(clip)
    return counter.get_total_flops() / 2e9


@pytest.mark.parametrize(
    ("build", "parameters", "cost"),
    [
        (video_swin_t, 28_158_070, 87.8),
        (video_swin_s, 49_816_678, 165.7),
        (video_swin_b, 88_048_984, 281.3),
        (video_swin_b_w16, 88_834_038, 320.4),
        (video_swin_mini, 731_870, 0.2916),
    ],
)
def test_presets_have_their_published_size_and_cost(build, parameters, cost):
    with torch.device("meta"):
        model = build().eval()
    assert sum(weight.numel() for weight in model.parameters()) == parameters
    assert gmacs(model) == pytest.approx(cost, rel=1e-3)


@pytest.mark.parametrize("fit_windows", [True, False])
@pytest.mark.parametrize("clip", [(6, 20, 28), (5, 33, 18), (1, 9, 4)])
def test_any_clip_gives_logits(clip, fit_windows):
    logits = micro(fit_windows=fit_windows)(torch.randn(2, 3, *clip))
    assert logits.shape == (2, 5)
    assert logits.isfinite().all()


def test_video_without_three_channels_is_refused():
    with pytest.raises(ValueError, match=r"video must be .* got \(2, 1, 4, 8, 8\)"):
        micro()(torch.randn(2, 1, 4, 8, 8))


def test_every_stage_needs_its_number_of_heads():
    with pytest.raises(ValueError, match="one value per stage"):
        micro(num_heads=(1, 2, 4))


@pytest.mark.parametrize("clip", [(6, 20, 28), (5, 33, 18)])
def test_sizes_are_known_without_running(clip):
    model = micro()
    grid = model.embed(torch.randn(1, 3, *clip))
    assert grid.thw == model.embed_thw(*clip)
    for block in model.blocks:
        expected = block.out_thw(grid.thw)
        grid = block(grid)
        assert grid.thw == expected


def test_a_stage_starts_with_its_own_grid_and_channels():
    model = micro(depths=(1, 3), num_heads=(1, 2))
    assert model.stage_starts == (0, 1)
    grid = model.blocks[0](model.embed(torch.randn(1, 3, 6, 20, 28)))
    assert grid.thw == (3, 3, 4)
    assert grid.tokens.shape[2] == 16


@pytest.mark.parametrize("thw", [(5, 7, 6), (3, 13, 11), (1, 1, 2)])
def test_every_block_takes_a_grid_that_selection_left(thw):
    model = micro()
    for block in model.blocks:
        channels = block.norm_mlp.normalized_shape[0]
        tokens = torch.randn(2, thw[0] * thw[1] * thw[2], channels)
        assert block(TokenGrid(tokens, thw)).thw == block.out_thw(thw)


def test_clips_of_a_batch_do_not_mix():
    model, clips = micro(), torch.randn(3, 3, 6, 20, 28)
    alone = torch.cat([model(clip[None]) for clip in clips])
    torch.testing.assert_close(model(clips), alone, atol=1e-5, rtol=1e-5)


def test_portions_change_nothing(monkeypatch):
    model, clips = micro(), torch.randn(2, 3, 6, 20, 28)
    whole = model(clips)
    monkeypatch.setattr(portions, "PORTION", 500)
    torch.testing.assert_close(model(clips), whole, atol=1e-5, rtol=1e-5)


@pytest.mark.parametrize("clip", [(6, 20, 28), (5, 33, 18)])
def test_gradients_reach_every_parameter(clip):
    model = micro().train()
    model(torch.randn(2, 3, *clip)).square().sum().backward()
    dead = [name for name, weight in model.named_parameters() if not weight.grad.any()]
    assert dead == []


def test_drop_path_leaves_out_whole_clips_in_training_only():
    model = micro(drop_path=0.5)
    block = model.blocks[-1]
    assert block.drop_path.drop_prob == 0.5
    branch = torch.ones(64, 1, 1, 1, 2)
    assert block.drop_path(branch).equal(branch)
    dropped = block.train().drop_path(branch)
    assert sorted(dropped.unique().tolist()) == [0.0, 2.0]
    assert dropped[..., 0].equal(dropped[..., 1])


def test_copies_and_pickles_give_the_same_logits():
    model, clip = micro(), torch.randn(1, 3, 6, 20, 28)
    expected = model(clip)
    assert copy.deepcopy(model)(clip).equal(expected)
    assert pickle.loads(pickle.dumps(model))(clip).equal(expected)


def test_only_bias_tables_are_spared_weight_decay_by_name():
    names = micro().no_weight_decay_names()
    assert names == {f"blocks.{index}.attention.bias_table" for index in range(4)}


@pytest.mark.slow
def test_compiled_model_equals_eager():
    model, clip = micro(depths=(2,), num_heads=(1,)), torch.randn(1, 3, 6, 12, 20)
    compiled = torch.compile(model, fullgraph=True, backend="aot_eager")
    with torch.no_grad():
        torch.testing.assert_close(compiled(clip), model(clip), atol=1e-5, rtol=1e-5)


@pytest.mark.slow
def test_exported_model_takes_batches_of_any_size():
    model, clips = micro(depths=(2,), num_heads=(1,)), torch.randn(3, 3, 6, 12, 20)
    batches = {"video": {0: torch.export.Dim("b", max=64)}}
    with torch.no_grad():
        exported = torch.export.export(model, (clips[:2],), dynamic_shapes=batches).module()
        torch.testing.assert_close(exported(clips), model(clips), atol=1e-5, rtol=1e-5)


@torch.no_grad()
@pytest.mark.slow
def test_compiled_for_one_size_it_takes_another():
    model = video_swin_mini(num_classes=3).eval()
    compiled = torch.compile(model, fullgraph=True, backend="aot_eager")
    for side in (24, 32):
        video = torch.randn(1, 3, 4, side, side)
        torch.testing.assert_close(compiled(video), model(video), rtol=1e-4, atol=1e-5)


def test_tokens_keep_their_size_where_patches_merge():
    torch.manual_seed(0)
    for block in video_swin_mini().blocks:
        if block.merging is not None:
            normed = torch.randn(50, block.merging.reduce.in_features)
            assert 0.7 < block.merging.reduce(normed).std() < 1.4
