"""Working in parts changes nothing but the order of the work."""

import pytest
import torch

from tokenselect import create_model
from tokenselect.backbones import fast_cpu as parts
from tokenselect.backbones.fast_cpu import fill_in_parts, is_cpu_inference
from tokenselect.backbones.mvit import mvit_mini
from tokenselect.backbones.mvit.block import Block, _halve, pool_maximum
from tokenselect.grid import TokenGrid
from tokenselect.measure.cost import count_macs


@pytest.mark.parametrize("at_once", [1, 2, 3, 7, 8])
def test_rows_come_back_in_order(at_once):
    left, right = torch.arange(14.0).view(7, 2), torch.arange(7.0)[:, None]
    sizes = []

    def add(left, right, out):
        sizes.append(len(left))
        torch.add(left, right, out=out)

    joined = fill_in_parts(add, left, right, out=torch.empty(7, 2), at_once=at_once)
    assert torch.equal(joined, left + right)
    assert max(sizes) <= at_once


def test_plain_code_runs_where_gradients_or_mixed_precision_are_wanted():
    tokens = torch.ones(7, 2)
    assert not is_cpu_inference(tokens)
    with torch.no_grad():
        assert is_cpu_inference(tokens)
        with torch.autocast("cpu", torch.bfloat16):
            assert not is_cpu_inference(tokens)


@pytest.mark.parametrize("training", [False, True])
@torch.no_grad()
def test_a_block_gives_the_same_tokens_in_parts(training, monkeypatch):
    torch.manual_seed(0)
    block = Block(8, 16, num_heads=2, q_stride=(1, 2, 2), kv_stride=(1, 2, 2)).train(training)
    grid = TokenGrid(torch.randn(3, 1 + 2 * 7 * 6, 8), (2, 7, 6), 1)
    whole = block(grid)
    for name in ("CLIP_VALUES", "TOKEN_VALUES", "MIN_TOKENS"):
        monkeypatch.setattr(parts, name, 5)
    torch.testing.assert_close(block(grid).tokens, whole.tokens)


@pytest.mark.parametrize("batch", [1, 3])
def test_logits_are_the_same_with_and_without_gradients(batch):
    torch.manual_seed(0)
    model = mvit_mini(frames=6, size=(24, 40)).eval()
    video = torch.randn(batch, 3, 6, 24, 40)
    plain = model(video)
    with torch.inference_mode():
        torch.testing.assert_close(model(video), plain.detach())


def test_the_patch_embedding_is_counted():
    with torch.device("meta"):
        model = mvit_mini(frames=4, size=32)
    assert count_macs(model, 1, 3, 4, 32, 32).by_module["patch"] == 2 * 8 * 8 * 24 * 3 * 3 * 5 * 5


@pytest.mark.parametrize("side", [6, 8])
def test_halving_a_side_twice_is_the_pooling_of_the_skip_path(side):
    patches = torch.randn(2, 3, side, 4, 5)
    pooled = pool_maximum(patches, stride=(1, 2, 2))
    assert torch.equal(_halve(_halve(patches, dim=3), dim=2), pooled)


@pytest.mark.parametrize("plan", ["dense", "T0_0.5-S4_0.5"])
def test_inference_leaves_out_the_last_blocks_patches_and_nothing_else(plan, monkeypatch):
    model, called = create_model("mvit_mini", plan=plan).eval(), []
    class_tokens = Block.class_tokens

    def watched(self, grid):
        called.append(self)
        return class_tokens(self, grid)

    monkeypatch.setattr(Block, "class_tokens", watched)
    video = torch.randn(2, 3, *model.default_input)
    with torch.no_grad():
        logits = model(video)
        handle = model.blocks[-1].register_forward_hook(lambda *_: None)  # someone wants its tokens
        torch.testing.assert_close(model(video), logits, rtol=1e-4, atol=1e-5)
        handle.remove()
    assert called == [model.blocks[-1]]
