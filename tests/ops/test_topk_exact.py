import itertools
import math

import pytest
import torch
from torch import Tensor
from torch._dynamo.testing import CompileCounterWithBackend
from torch.utils.checkpoint import checkpoint

from tokenselect.ops import one_hot_topk, perturbed_topk
from tokenselect.ops import threshold as threshold_walk
from tokenselect.ops import topk_exact as top1_exact

SIZES = [(4, 1), (5, 2), (5, 3), (6, 4), (6, 5), (2, 1)]


def enumerated_topk(scores: Tensor, k: int, sigma: float) -> Tensor:
    """Sum over every possible choice, each integrated over the threshold on a fine grid."""
    reach = 9 * sigma
    low, high = float(scores.detach().min()), float(scores.detach().max())
    grid = torch.linspace(low - reach, high + reach, 801, dtype=scores.dtype)
    above = (scores.unsqueeze(-1) - grid) / sigma  # (l, q)
    chance = 0.5 * torch.erfc(-above * math.sqrt(0.5))
    density = torch.exp(-0.5 * above**2) / (sigma * math.sqrt(2 * math.pi))
    rows = [[torch.zeros((), dtype=scores.dtype)] * len(scores) for _ in range(k)]
    for choice in itertools.combinations(range(len(scores)), k):
        dropped = [i for i in range(len(scores)) if i not in choice]
        total = torch.zeros_like(grid)
        for owner in choice:
            others = [i for i in choice if i != owner]
            total = total + density[owner] * chance[others].prod(0) * (1 - chance[dropped]).prod(0)
        probability = torch.trapezoid(total, grid)
        for place, candidate in enumerate(choice):
            rows[place][candidate] = rows[place][candidate] + probability
    return torch.stack([torch.stack(row) for row in rows])


@pytest.mark.parametrize("sigma", [1.0, 0.1])
@pytest.mark.parametrize(("num_candidates", "k"), SIZES)
def test_value_and_gradient_are_those_of_all_choices_enumerated(
    num_candidates: int, k: int, sigma: float
):
    torch.manual_seed(num_candidates + k)
    scores = (torch.rand(num_candidates, dtype=torch.float64) * 3 * sigma).requires_grad_()
    upstream = torch.randn(k, num_candidates, dtype=torch.float64)
    expected = enumerated_topk(scores, k, sigma)
    indicator = perturbed_topk(scores, k, sigma)
    torch.testing.assert_close(indicator, expected, rtol=0, atol=1e-9)
    (expected_grad,) = torch.autograd.grad((expected * upstream).sum(), scores)
    (grad,) = torch.autograd.grad((indicator * upstream).sum(), scores)
    torch.testing.assert_close(grad, expected_grad, rtol=0, atol=1e-8 / sigma)


@pytest.mark.parametrize(("num_candidates", "k"), [(8, 5), (9, 1), (7, 3)])
def test_four_hundred_thousand_samples_agree_within_their_error(num_candidates: int, k: int):
    torch.manual_seed(1)
    scores = torch.rand(num_candidates, dtype=torch.float64) * 0.3
    num_samples = 400_000
    noisy = scores + 0.1 * torch.randn(num_samples, num_candidates, dtype=torch.float64)
    kept = noisy.topk(k).indices.sort().values
    counts = torch.stack([kept[:, i].bincount(minlength=num_candidates) for i in range(k)])
    indicator = perturbed_topk(scores, k, 0.1)
    error = (indicator * (1 - indicator) / num_samples).sqrt()
    assert ((counts / num_samples - indicator).abs() <= 5 * error + 1e-6).all()


@pytest.mark.parametrize(("num_candidates", "k"), [*SIZES, (8, 5), (16, 10), (9, 1), (20, 9)])
def test_gradient_is_that_of_finite_differences(num_candidates: int, k: int):
    torch.manual_seed(2)
    scores = torch.rand(num_candidates, dtype=torch.float64, requires_grad=True)
    upstream = torch.randn(k, num_candidates, dtype=torch.float64)
    (grad,) = torch.autograd.grad(perturbed_topk(scores, k, 0.5), scores, upstream)
    shifts = 1e-4 * torch.eye(num_candidates, dtype=torch.float64)
    moved = torch.cat((scores.detach() + shifts, scores.detach() - shifts))
    up, down = (perturbed_topk(moved, k, 0.5) * upstream).sum(dim=(-2, -1)).chunk(2)
    torch.testing.assert_close(grad, (up - down) / 2e-4, rtol=0, atol=1e-6)


@pytest.mark.parametrize("sigma", [1.0, 0.1, 1e-2, 1e-4])
@pytest.mark.parametrize(("num_candidates", "k"), [(8, 5), (16, 6), (9, 1), (9, 8), (20, 10)])
def test_rows_sum_to_one_and_the_gradient_to_zero(num_candidates: int, k: int, sigma: float):
    torch.manual_seed(3)
    scores = (sigma * 2 * torch.randn(3, num_candidates, dtype=torch.float64)).requires_grad_()
    indicator = perturbed_topk(scores, k, sigma)
    torch.testing.assert_close(indicator.sum(-1), torch.ones(3, k).double(), rtol=0, atol=1e-9)
    assert (indicator >= 0).all()
    upstream = torch.randn_like(indicator)
    (grad,) = torch.autograd.grad(indicator, scores, upstream)
    assert grad.abs().max() > 0.01 / sigma
    assert grad.sum(-1).abs().max() < 1e-8 / sigma


@pytest.mark.parametrize("k", [1, 3, 5, 6])
def test_inclusion_rises_with_the_own_score(k: int):
    scores = torch.rand(7, dtype=torch.float64)
    raised = scores.repeat(5, 1)
    raised[:, 2] += torch.linspace(-0.4, 0.4, 5, dtype=torch.float64)
    inclusion = perturbed_topk(raised, k, 0.2).sum(dim=-2)
    assert (inclusion[:, 2].diff() > 0).all()
    others = [0, 1, 3, 4, 5, 6]
    assert (inclusion[:, others].diff(dim=0) < 1e-12).all()


@pytest.mark.parametrize("k", [1, 3, 5, 6])
def test_equal_scores_are_included_alike(k: int):
    scores = torch.tensor([0.3, 0.5, 0.3, 0.1, 0.3, 0.2, 0.4], dtype=torch.float64)
    inclusion = perturbed_topk(scores, k, 0.1).sum(dim=-2)
    torch.testing.assert_close(inclusion[[0, 2]], inclusion[[2, 4]], rtol=0, atol=1e-10)


@pytest.mark.parametrize("sigma", [1.0, 0.1, 1e-2, 1e-3, 1e-4])
@pytest.mark.parametrize(("num_candidates", "k"), [(8, 5), (16, 6), (9, 1), (81, 1), (24, 12)])
def test_float32_agrees_with_float64(num_candidates: int, k: int, sigma: float):
    torch.manual_seed(4)
    scores = 1 + sigma * 3 * torch.rand(2, num_candidates)  # near, so that the choice is open
    upstream = torch.randn(2, k, num_candidates)
    results = []
    for dtype in (torch.float32, torch.float64):
        leaf = scores.to(dtype).requires_grad_()
        indicator = perturbed_topk(leaf, k, sigma)
        (grad,) = torch.autograd.grad(indicator, leaf, upstream.to(dtype))
        results.append((indicator.double(), grad.double() * sigma))
    torch.testing.assert_close(results[0], results[1], rtol=0, atol=3e-6)


def test_vanishing_noise_gives_the_hard_choice_without_gradient():
    torch.manual_seed(5)
    scores = torch.randperm(11).float().requires_grad_()
    for k in (1, 4, 7, 10):
        indicator = perturbed_topk(scores, k, 1e-4)
        torch.testing.assert_close(indicator, one_hot_topk(scores, k), rtol=0, atol=1e-6)
        (grad,) = torch.autograd.grad(indicator, scores, torch.randn_like(indicator))
        assert grad.abs().max() < 1e-6


def test_keeping_everything_is_the_identity():
    assert torch.equal(perturbed_topk(torch.randn(2, 5), 5, 0.1), torch.eye(5).repeat(2, 1, 1))


@pytest.mark.parametrize("k", [1, 2, 4, 5])
def test_infinite_scores_are_certain(k: int):
    finite = torch.tensor([0.1, 0.3, 0.2, 0.25, 0.15, 0.22])
    scores = finite.clone()
    scores[3] = -torch.inf
    scores.requires_grad_()
    indicator = perturbed_topk(scores, k, 0.1)
    without = perturbed_topk(finite[[0, 1, 2, 4, 5]], k, 0.1)
    torch.testing.assert_close(indicator[:, [0, 1, 2, 4, 5]], without)
    (grad,) = torch.autograd.grad(indicator, scores, torch.randn_like(indicator))
    assert grad.isfinite().all() and grad[3] == 0


@pytest.mark.parametrize(("num_candidates", "k"), [(9, 1), (9, 4), (9, 6)])
def test_working_in_pieces_changes_nothing(
    num_candidates: int, k: int, monkeypatch: pytest.MonkeyPatch
):
    scores = torch.randn(5, num_candidates, dtype=torch.float64, requires_grad=True)
    upstream = torch.randn(5, k, num_candidates, dtype=torch.float64)

    def value_and_grad() -> tuple[Tensor, Tensor]:
        indicator = perturbed_topk(scores, k, 0.7)
        return indicator.detach(), torch.autograd.grad(indicator, scores, upstream)[0]

    whole = value_and_grad()
    monkeypatch.setattr(threshold_walk, "_MAX_ELEMENTS", 3000)  # splits the nodes of a row
    monkeypatch.setattr(top1_exact, "_MAX_ELEMENTS", 3000)
    torch.testing.assert_close(value_and_grad(), whole, rtol=0, atol=1e-13)


@pytest.mark.parametrize("shape", [(7,), (2, 7), (2, 3, 7), (0, 7)])
def test_any_leading_dimensions_are_kept(shape: tuple[int, ...]):
    scores = torch.randn(shape)
    indicator = perturbed_topk(scores, 3, 0.1)
    assert indicator.shape == (*shape[:-1], 3, 7)
    if indicator.ndim == 4:
        torch.testing.assert_close(indicator[1, 2], perturbed_topk(scores[1, 2], 3, 0.1))


@pytest.mark.parametrize("k", [1, 3, 5])
def test_autocast_still_computes_in_float32(k: int):
    scores = torch.rand(2, 8, dtype=torch.bfloat16, requires_grad=True)
    upstream = torch.randn(2, k, 8).bfloat16()
    with torch.autocast("cpu", dtype=torch.bfloat16):
        indicator = perturbed_topk(scores, k, 0.1)
    (grad,) = torch.autograd.grad(indicator, scores, upstream)
    wide = scores.detach().float().requires_grad_()
    expected = perturbed_topk(wide, k, 0.1)
    (expected_grad,) = torch.autograd.grad(expected, wide, upstream.float())
    assert torch.equal(indicator, expected.bfloat16())
    assert torch.equal(grad, expected_grad.bfloat16())


@pytest.mark.slow
@pytest.mark.parametrize("k", [1, 3, 5])
def test_one_compiled_graph_serves_every_sigma(k: int):
    counter = CompileCounterWithBackend("aot_eager")
    compiled = torch.compile(lambda s, sigma: perturbed_topk(s, k, sigma), backend=counter)
    scores = torch.randn(2, 7, requires_grad=True)
    for sigma in torch.tensor([0.1, 0.05, 0.0]):
        indicator = compiled(scores, sigma)
        torch.testing.assert_close(indicator, perturbed_topk(scores, k, sigma))
        grads = torch.autograd.grad(indicator.square().sum(), scores)
        eager = perturbed_topk(scores, k, sigma).square().sum()
        torch.testing.assert_close(grads, torch.autograd.grad(eager, scores))
    assert counter.frame_count == 1


@pytest.mark.parametrize("k", [1, 3, 5, 6, 7])
def test_operators_keep_what_they_promise_to_the_compiler(k: int):
    scores = torch.randn(2, 7, requires_grad=True)
    sigma = torch.tensor(0.3)
    ops = torch.ops.tokenselect
    tests = ("test_schema", "test_autograd_registration", "test_faketensor")
    torch.library.opcheck(ops.exact_topk.default, (scores, sigma, k), test_utils=tests)
    arguments = (torch.randn(2, k, 7), scores.detach(), sigma, torch.rand(2, k, 7))
    torch.library.opcheck(ops.exact_topk_gradient.default, arguments, test_utils=tests)


def test_activation_checkpointing_changes_nothing():
    scores = torch.randn(2, 7, requires_grad=True)
    tokens = torch.randn(2, 7, 4)

    def keep(s: Tensor) -> Tensor:
        return perturbed_topk(s, 3, 0.2) @ tokens

    plain = torch.autograd.grad(keep(scores).square().sum(), scores)
    again = checkpoint(keep, scores, use_reentrant=False)
    assert again is not None
    torch.testing.assert_close(torch.autograd.grad(again.square().sum(), scores), plain)
