"""Fused products equal the layers they stand for."""

import pytest
import torch
from torch import nn
from torch.nn.utils import parametrizations

from tokenselect.backbones.fast_cpu import add_linear, gelu_linear


class Doubled(nn.Linear):
    """A layer that is more than its weight and bias."""

    def forward(self, tokens):
        return 2 * super().forward(tokens)


def layers() -> list[nn.Linear]:
    return [nn.Linear(6, 5), Doubled(6, 5), parametrizations.weight_norm(nn.Linear(6, 5))]


@pytest.mark.parametrize("layer", layers(), ids=["plain", "subclass", "parametrized"])
def test_they_equal_layer_and_sum_with_and_without_gradients(layer):
    skip, tokens = torch.randn(7, 5), torch.randn(7, 6)
    before = skip.clone()
    for enabled in (True, False):
        with torch.set_grad_enabled(enabled):
            torch.testing.assert_close(add_linear(skip, tokens, layer), skip + layer(tokens))
            expected = nn.functional.gelu(layer(tokens))
            torch.testing.assert_close(gelu_linear(tokens, layer), expected)
    assert torch.equal(skip, before)
