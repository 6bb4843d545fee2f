import pytest
import torch

from tokenselect.ops import one_hot_topk, perturbed_topk


def test_sampled_rows_sum_to_one():
    indicator = perturbed_topk(torch.randn(2, 3, 7), 4, 0.1, method="sampled")
    assert indicator.shape == (2, 3, 4, 7)
    torch.testing.assert_close(indicator.sum(-1), torch.ones(2, 3, 4))


@pytest.mark.parametrize("sigma", [0, 0.0, torch.tensor(0.0)])
def test_no_noise_is_hard_topk_without_gradient(sigma: float | torch.Tensor):
    scores = torch.randn(2, 7, requires_grad=True)
    indicator = perturbed_topk(scores, 3, sigma)
    torch.testing.assert_close(indicator, one_hot_topk(scores, 3))
    if indicator.requires_grad:
        indicator.square().sum().backward()
        assert scores.grad is not None and not scores.grad.any()


def test_bad_arguments_are_named():
    with pytest.raises(ValueError, match=r"sigma must be at least 0, got -0.1"):
        perturbed_topk(torch.randn(5), 2, -0.1)
    with pytest.raises(ValueError, match=r"method must be .*, got 'best'"):
        perturbed_topk(torch.randn(5), 2, 0.1, method="best")
