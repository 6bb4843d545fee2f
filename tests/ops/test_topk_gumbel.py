import pytest
import torch

from tokenselect.ops import gumbel_topk


def test_rows_are_one_hot_in_input_order():
    indicator = gumbel_topk(torch.randn(2, 3, 7), 4)
    assert indicator.shape == (2, 3, 4, 7)
    assert torch.equal(indicator.amax(-1), torch.ones(2, 3, 4))
    assert torch.equal(indicator.sum(-1), torch.ones(2, 3, 4))
    assert (indicator.argmax(-1).diff(dim=-1) > 0).all()


def test_one_is_drawn_in_proportion_to_its_weight():
    torch.manual_seed(0)
    scores = torch.tensor([0.0, 1.0, -1.0, 0.5])
    counts = gumbel_topk(scores.repeat(20_000, 1), 1).sum(dim=(0, 1))
    torch.testing.assert_close(counts / 20_000, scores.softmax(-1), rtol=0, atol=0.02)


def test_the_gradient_of_one_is_that_of_the_noisy_softmax():
    scores = torch.randn(5, requires_grad=True)
    upstream = torch.randn(5)
    generator = torch.Generator().manual_seed(3)
    indicator = gumbel_topk(scores, 1, temperature=0.7, generator=generator)
    (grad,) = torch.autograd.grad(indicator[0], scores, upstream)
    noise = torch.empty(5).exponential_(generator=torch.Generator().manual_seed(3)).log()
    relaxed = ((scores - noise) / 0.7).softmax(-1)
    torch.testing.assert_close(grad, torch.autograd.grad(relaxed, scores, upstream)[0])


def test_every_score_gets_a_gradient():
    scores = torch.randn(2, 7, requires_grad=True)
    gumbel_topk(scores, 3).mul(torch.randn(2, 3, 7)).sum().backward()
    assert scores.grad is not None and (scores.grad != 0).all()


def test_keeping_everything_is_the_identity_with_a_finite_gradient():
    scores = torch.randn(4, requires_grad=True)
    indicator = gumbel_topk(scores, 4)
    torch.testing.assert_close(indicator, torch.eye(4))
    (grad,) = torch.autograd.grad(indicator.square().sum(), scores)
    assert grad.isfinite().all()


def test_a_seed_repeats_the_draw():
    scores = torch.randn(3, 9)
    draws = [gumbel_topk(scores, 4, generator=torch.Generator().manual_seed(1)) for _ in range(2)]
    assert torch.equal(*draws)


def test_half_precision_is_drawn_in_float32():
    indicator = gumbel_topk(torch.randn(3, 9).bfloat16(), 4)
    assert indicator.dtype == torch.bfloat16
    assert torch.equal(indicator.sum(-1), torch.ones(3, 4).bfloat16())


def test_a_bad_temperature_is_named():
    with pytest.raises(ValueError, match="temperature must be above 0, got 0"):
        gumbel_topk(torch.randn(5), 2, temperature=0)
