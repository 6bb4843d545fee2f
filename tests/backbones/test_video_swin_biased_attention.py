import pytest
import torch
import torch.nn.functional as F

from tokenselect.backbones import fast_cpu as portions
from tokenselect.backbones.video_swin.block import attend


def case() -> list[torch.Tensor]:
    """Return q, k, v and biases of 5 windows, 3 heads, 7 tokens, 4 channels; some pairs hidden."""
    torch.manual_seed(0)
    tensors = [torch.randn(5, 3, 7, 4, dtype=torch.float64) for _ in range(3)]
    bias = torch.randn(3, 7, 7, dtype=torch.float64)
    bias[:, :3, 3:] = -torch.inf
    bias[:, 3:, :3] = -torch.inf
    return [tensor.requires_grad_() for tensor in [*tensors, bias]]


def attend_plainly(q, k, v, bias):
    return F.scaled_dot_product_attention(q, k, v, attn_mask=bias[None])


@pytest.mark.parametrize("portion", [1, 2**21])
def test_attention_and_its_gradients_equal_the_plain_ones(portion, monkeypatch):
    monkeypatch.setattr(portions, "PORTION", portion)
    inputs, grad = case(), torch.randn(5, 3, 7, 4, dtype=torch.float64)
    ours, plain = attend(*inputs), attend_plainly(*inputs)
    torch.testing.assert_close(ours, plain)
    gradients = torch.autograd.grad(ours, inputs, grad)
    for found, expected in zip(gradients, torch.autograd.grad(plain, inputs, grad), strict=True):
        torch.testing.assert_close(found, expected)


def test_no_scores_are_kept_for_the_backward_pass():
    q, k, v, bias = case()
    kept: list[int] = []
    with torch.autograd.graph.saved_tensors_hooks(
        lambda x: kept.append(x.numel()) or x, lambda x: x
    ):
        attend(q, k, v, bias)
    assert max(kept) < 5 * 3 * 7 * 7  # fewer than the scores of all windows


def test_a_frozen_bias_still_lets_gradients_through():
    q, k, v, bias = case()
    gradients = torch.autograd.grad(attend(q, k, v, bias.detach()).sum(), (q, k, v))
    assert all(gradient.any() for gradient in gradients[2:])


def test_biases_take_the_precision_of_the_queries():
    q, k, v, bias = (tensor.detach() for tensor in case())
    mixed = attend(q.float(), k.float(), v.float(), bias)
    assert mixed.dtype == torch.float32
