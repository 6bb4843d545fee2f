"""Working in parts changes nothing but the order of the work."""

import pytest
import torch

from tokenselect.backbones import fast_cpu as parts
from tokenselect.backbones.fast_cpu import fill_in_parts, is_cpu_inference
from tokenselect.backbones.mvit import mvit_mini
from tokenselect.backbones.mvit.block import Block
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
