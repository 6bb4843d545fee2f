import pytest
import torch

from tokenselect.ops import choose_method, one_hot_topk, perturbed_topk

METHODS = ["exact", "sampled", "diagonal"]


@pytest.mark.parametrize("method", METHODS)
@pytest.mark.parametrize("dtype", [torch.bfloat16, torch.float32, torch.float64])
def test_shape_and_dtype_follow_the_scores(method: str, dtype: torch.dtype):
    scores = torch.rand(2, 3, 7, dtype=dtype, requires_grad=True)
    indicator = perturbed_topk(scores, 4, 0.1, method=method, num_samples=20)
    assert indicator.shape == (2, 3, 4, 7) and indicator.dtype == dtype
    atol = 0.02 if dtype == torch.bfloat16 else 1e-5
    torch.testing.assert_close(indicator.sum(-1).float(), torch.ones(2, 3, 4), rtol=0, atol=atol)
    indicator.square().sum().backward()
    assert scores.grad is not None and scores.grad.dtype == dtype and scores.grad.any()


@pytest.mark.parametrize("method", METHODS)
@pytest.mark.parametrize("k", [1, 3, 5])
@pytest.mark.parametrize("sigma", [0, 0.0, torch.tensor(0.0)])
def test_no_noise_is_hard_topk_without_gradient(sigma: float | torch.Tensor, k: int, method: str):
    scores = torch.tensor([[0.1, 0.5, 0.5, 0.5, 0.2, 0.4, 0.1]], requires_grad=True)  # has ties
    indicator = perturbed_topk(scores, k, sigma, method=method, num_samples=10)
    assert torch.equal(indicator, one_hot_topk(scores, k))
    if indicator.requires_grad:
        indicator.square().sum().backward()
        assert scores.grad is not None and not scores.grad.any()


@pytest.mark.parametrize("k", [1, 3, 5])
def test_a_tensor_sigma_is_the_number(k: int):
    scores = torch.rand(2, 7)
    torch.testing.assert_close(
        perturbed_topk(scores, k, torch.tensor(0.2)), perturbed_topk(scores, k, 0.2)
    )


@pytest.mark.parametrize("method", METHODS)
def test_shapes_pass_on_the_meta_device(method: str):
    scores = torch.empty(2, 7, device="meta")
    assert perturbed_topk(scores, 3, 0.1, method=method).shape == (2, 3, 7)


@pytest.mark.parametrize(("num_candidates", "k"), [(9, 1), (8, 5), (32, 16), (3136, 1), (196, 195)])
def test_few_candidates_or_one_chosen_are_computed(num_candidates: int, k: int):
    assert choose_method(num_candidates, k) == "exact"


@pytest.mark.parametrize(("num_candidates", "k"), [(196, 98), (33, 2), (1568, 784)])
def test_many_candidates_are_sampled(num_candidates: int, k: int):
    assert choose_method(num_candidates, k) == "sampled"


def test_auto_follows_the_rule_of_sizes():
    few, many = torch.rand(8), torch.rand(40)
    assert torch.equal(perturbed_topk(few, 5, 0.1, method="auto"), perturbed_topk(few, 5, 0.1))
    torch.manual_seed(0)
    chosen = perturbed_topk(many, 5, 0.1, method="auto")
    torch.manual_seed(0)
    assert torch.equal(chosen, perturbed_topk(many, 5, 0.1, method="sampled"))


def test_bad_arguments_are_named():
    with pytest.raises(ValueError, match=r"sigma must be at least 0, got -0\.1"):
        perturbed_topk(torch.randn(5), 2, -0.1)
    with pytest.raises(ValueError, match=r"method must be one of exact, .*, got 'best'"):
        perturbed_topk(torch.randn(5), 2, 0.1, method="best")
    with pytest.raises(ValueError, match=r"k must be in 1\.\.5 .*, got 6"):
        perturbed_topk(torch.randn(5), 6, 0.1)
    with pytest.raises(ValueError, match="scores must not be NaN, got 1"):
        perturbed_topk(torch.tensor([0.0, float("nan"), 1.0]), 2, 0.1)
