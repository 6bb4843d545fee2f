import torch
from hypothesis import given
from hypothesis import strategies as st

from tokenselect.ops.noise import rescale

FLOATS = st.floats(-100, 100, width=32)


@given(st.lists(FLOATS, min_size=2, max_size=9), FLOATS)
def test_a_shift_of_all_scores_changes_nothing(values, shift):
    scores = torch.tensor(values, dtype=torch.float64)
    if scores.max() - scores.min() > 1e-2:
        torch.testing.assert_close(rescale(scores + shift), rescale(scores), rtol=0, atol=1e-6)


def test_the_range_is_zero_to_one():
    scores = rescale(torch.randn(4, 5, 9))
    assert torch.equal(scores.amin(-1), torch.zeros(4, 5))
    torch.testing.assert_close(scores.amax(-1), torch.ones(4, 5))


def test_equal_scores_become_zero_and_keep_a_finite_gradient():
    scores = torch.full((3,), 2.0, requires_grad=True)
    rescale(scores).sum().backward()
    assert torch.equal(rescale(scores), torch.zeros(3))
    assert scores.grad.isfinite().all()


def test_two_scores_keep_their_order_and_a_gradient():
    scores = torch.tensor([[0.3, -0.4], [1.0, 2.5]], requires_grad=True)
    rescaled = rescale(scores)
    assert rescaled.argmax(-1).tolist() == [0, 1]
    rescaled[:, 0].sum().backward()
    assert scores.grad.abs().min() > 0.05
