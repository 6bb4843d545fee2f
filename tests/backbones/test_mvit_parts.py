"""Working in parts changes nothing but the order of the work."""

import pytest
import torch

from tokenselect.backbones.mvit import parts
from tokenselect.backbones.mvit.block import Block
from tokenselect.backbones.mvit.parts import in_parts
from tokenselect.grid import TokenGrid


@pytest.mark.parametrize("at_once", [1, 2, 3, 7, 8])
@torch.no_grad()
def test_rows_come_back_in_order(at_once):
    left, right = torch.arange(14.0).view(7, 2), torch.arange(7.0)[:, None]
    sizes = []

    def add(left, right):
        sizes.append(len(left))
        return left + right

    joined = in_parts(add, left, right, at_once=at_once)
    assert torch.equal(joined, left + right)
    assert max(sizes) <= at_once


def test_rows_stay_together_when_gradients_are_wanted():
    sizes = []
    in_parts(lambda rows: sizes.append(len(rows)), torch.ones(7, 2), at_once=2)
    assert sizes == [7]


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
