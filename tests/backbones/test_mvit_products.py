"""Fused products equal the layers they stand for."""

import pytest
import torch
from torch import nn

from tokenselect.backbones.fast_cpu import add_linear, apply_in_parts, gelu_linear


@pytest.mark.parametrize("bias", [True, False])
@torch.no_grad()
def test_they_equal_layer_sum_and_gelu(bias):
    layer = nn.Linear(6, 5, bias=bias)
    skip, tokens = torch.randn(7, 5), torch.randn(7, 6)
    before = skip.clone()
    torch.testing.assert_close(add_linear(skip, tokens, layer), skip + layer(tokens))
    torch.testing.assert_close(gelu_linear(tokens, layer), nn.functional.gelu(layer(tokens)))
    clips = torch.randn(2, 3, 6)
    torch.testing.assert_close(apply_in_parts(clips, layer), layer(clips))
    assert torch.equal(skip, before)
