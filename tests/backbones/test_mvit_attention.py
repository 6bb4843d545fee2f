"""Pooling and attention of MViT against slow, obvious code."""

import math
from itertools import product

import pytest
import torch

from tokenselect.backbones.mvit.block import Block, PooledAttention, pool_maximum, pooled_thw
from tokenselect.backbones.mvit.convolution import convolve_tokens, keep_read
from tokenselect.grid import TokenGrid


def convolve_slowly(patches, weight, *, stride):
    """Sum kernel × patch for every output, channel by channel, nothing beyond the borders."""
    b, *thw, c = patches.shape
    d, _, *sides = weight.shape
    kernel = weight.repeat(c // d, 1, 1, 1, 1)[:, 0].permute(1, 2, 3, 0)  # (kt, kh, kw, c)
    margins = [side // 2 for side in sides]
    padded = patches.new_zeros(b, *(n + 2 * m for n, m in zip(thw, margins, strict=True)), c)
    inside = (slice(m, m + n) for n, m in zip(thw, margins, strict=True))
    padded[:, *inside] = patches
    pooled = patches.new_zeros(b, *pooled_thw(tuple(thw), stride), c)
    for place in product(*map(range, pooled.shape[1:4])):
        first = [i * step for i, step in zip(place, stride, strict=True)]
        window = padded[:, *(slice(i, i + side) for i, side in zip(first, sides, strict=True))]
        pooled[:, *place] = (window * kernel).sum((1, 2, 3))
    return pooled


STRIDES = [(1, 1, 1), (1, 2, 2), (1, 4, 4), (2, 3, 1), (3, 1, 2), (1, 8, 8)]


def convolve_with_conv3d(patches, weight, *, stride):
    c = patches.shape[-1]
    kernel = weight.repeat(c // weight.shape[0], 1, 1, 1, 1)
    padding = [side // 2 for side in weight.shape[2:]]
    volume = patches.permute(0, 4, 1, 2, 3)
    pooled = torch.conv3d(volume, kernel, stride=stride, padding=padding, groups=c)
    return pooled.permute(0, 2, 3, 4, 1)


@pytest.mark.parametrize("stride", STRIDES, ids=str)
@pytest.mark.parametrize("thw", [(3, 7, 6), (1, 5, 4), (2, 1, 9)], ids=str)
@pytest.mark.parametrize("num_prefix", [0, 1, 2])
def test_convolution_equals_its_definition(stride, thw, num_prefix):
    generator = torch.Generator().manual_seed(0)
    tokens = torch.randn(2, num_prefix + math.prod(thw), 8, generator=generator)
    weight = torch.randn(4, 1, 3, 3, 3, generator=generator)
    found = convolve_tokens(tokens, weight, thw=thw, stride=stride)
    patches = tokens[:, num_prefix:].unflatten(1, thw)
    expected = convolve_slowly(patches, weight, stride=stride).flatten(1, 3)
    torch.testing.assert_close(found[:, num_prefix:], expected)
    assert torch.equal(found[:, :num_prefix], tokens[:, :num_prefix])


@pytest.mark.parametrize("stride", STRIDES, ids=str)
@pytest.mark.parametrize("thw", [(3, 5, 4), (4, 8, 7)], ids=str)
@pytest.mark.parametrize("kernel", [(3, 3, 3), (1, 5, 3), (5, 1, 7)], ids=str)
def test_convolution_has_the_gradients_of_its_definition(stride, thw, kernel):
    generator = torch.Generator().manual_seed(0)
    values = dict(dtype=torch.float64, generator=generator)
    tokens = torch.randn(2, 1 + math.prod(thw), 4, requires_grad=True, **values)
    weight = torch.randn(2, 1, *kernel, requires_grad=True, **values)
    patches = tokens[:, 1:].unflatten(1, thw)
    slow = convolve_with_conv3d(patches, weight, stride=stride).flatten(1, 3)
    slow = torch.cat([tokens[:, :1], slow], dim=1)
    cotangent = torch.randn(slow.shape, **values)
    expected = torch.autograd.grad(slow, (tokens, weight), cotangent)
    fast = convolve_tokens(tokens, weight, thw=thw, stride=stride)
    torch.testing.assert_close(torch.autograd.grad(fast, (tokens, weight), cotangent), expected)


@pytest.mark.parametrize("stride", [(1, 2, 2), (2, 1, 3), (1, 4, 4)], ids=str)
@pytest.mark.parametrize("thw", [(3, 7, 6), (4, 6, 9)], ids=str)
def test_maximum_pools_to_the_same_grid_as_the_convolution(stride, thw):
    patches = torch.randn(2, *thw, 8)
    assert pool_maximum(patches, stride=stride).shape[1:4] == pooled_thw(thw, stride)


def test_maximum_is_of_windows_that_overlap_by_one():
    row = torch.tensor([0.0, 5.0, 1.0, 2.0, 7.0, 3.0])
    pooled = pool_maximum(row.reshape(1, 1, 1, 6, 1), stride=(1, 1, 2))
    assert pooled.flatten().tolist() == [5.0, 5.0, 7.0]


def attend_slowly(attention, tokens, thw, *, num_prefix):
    """Do as the paper writes it, head by head; return the output and (b, heads, q, k) shares."""
    q, k, v = attention.q(tokens), attention.k(tokens), attention.v(tokens)
    d = attention.head_channels

    def pool(tokens, pool, stride):
        if pool is None:
            return tokens
        patches = tokens[:, num_prefix:].unflatten(1, thw)
        patches = convolve_slowly(patches, pool.conv.weight, stride=stride).flatten(1, 3)
        return pool.norm(torch.cat([tokens[:, :num_prefix], patches], dim=1))

    outputs, shares = [], []
    for head in range(q.shape[-1] // d):
        part = slice(head * d, (head + 1) * d)
        queries = pool(q[..., part], attention.pool_q, attention.q_stride)
        keys = pool(k[..., part], attention.pool_k, attention.kv_stride)
        values = pool(v[..., part], attention.pool_v, attention.kv_stride)
        shares.append((queries @ keys.mT / d**0.5).softmax(-1))
        outputs.append(shares[-1] @ values)
    return torch.cat(outputs, -1), torch.stack(shares, 1)


@pytest.mark.parametrize("q_stride", [(1, 1, 1), (1, 2, 2)], ids=str)
@pytest.mark.parametrize("kv_stride", [(1, 2, 2), (1, 4, 4), (4, 5, 8)], ids=str)
@pytest.mark.parametrize("num_prefix", [1, 2])
@pytest.mark.parametrize("gradients", [False, True])
def test_attention_equals_its_definition(q_stride, kv_stride, num_prefix, gradients):
    torch.manual_seed(0)
    attention = PooledAttention(12, 3, q_stride=q_stride, kv_stride=kv_stride, kernel=(3, 3, 3))
    tokens = torch.randn(2, num_prefix + 6 * 9 * 7, 12)
    with torch.set_grad_enabled(gradients):
        expected, _ = attend_slowly(attention, tokens, (6, 9, 7), num_prefix=num_prefix)
        torch.testing.assert_close(attention(tokens, (6, 9, 7)), expected)


@pytest.mark.parametrize("step", range(1, 10))
@pytest.mark.parametrize("side", range(1, 20))
def test_dropping_what_is_not_read_leaves_the_pooling_as_it_was(side, step):
    tokens = torch.randn(1, 1 + side, 4, generator=torch.Generator().manual_seed(0))
    weight = torch.randn(4, 1, 1, 1, 3, generator=torch.Generator().manual_seed(1))
    thw, stride = (1, 1, side), (1, 1, step)
    kept, kept_thw, kept_stride = keep_read(tokens, thw=thw, kernel=(1, 1, 3), stride=stride)
    assert kept_thw[2] <= 3 * pooled_thw(thw, stride)[2]
    found = convolve_tokens(kept, weight, thw=kept_thw, stride=kept_stride)
    expected = convolve_tokens(tokens, weight, thw=thw, stride=stride)
    torch.testing.assert_close(found, expected)


def test_class_attention_is_that_of_the_block_spread_over_its_output():
    torch.manual_seed(0)
    block = Block(12, 12, num_heads=3, q_stride=(1, 2, 2), kv_stride=(1, 4, 4)).eval()
    grid = TokenGrid(torch.randn(2, 1 + 3 * 8 * 6, 12), (3, 8, 6), 1)
    with torch.no_grad():
        normed = block.norm_attention(grid.tokens)
        _, shares = attend_slowly(block.attention, normed, grid.thw, num_prefix=1)
        of_class = shares[:, :, 0, 1:].mean(1).unflatten(1, (3, 2, 2))
        found = block.class_attention(grid)
    assert found.shape == (2, 3, 4, 3)
    torch.testing.assert_close(found[:, :, ::2, 0], of_class[..., 0])
    torch.testing.assert_close(found[:, :, 1::2, 2], of_class[..., 1])


def test_class_attention_without_a_class_token_is_refused():
    grid = TokenGrid(torch.randn(1, 8, 4), (2, 2, 2))
    with pytest.raises(ValueError, match="num_prefix=0"):
        Block(4, 4, num_heads=1).class_attention(grid)
