import pytest
import torch
from torch import Tensor
from torch._dynamo.testing import CompileCounterWithBackend
from torch.nn.functional import one_hot
from torch.utils.checkpoint import checkpoint

from tokenselect.ops import perturbed_topk, topk_sampled


def one_hot_samples(scores: Tensor, k: int, noise: Tensor) -> Tensor:
    """Give the (b, s, k, l) one-hots of the noisy choices."""
    kept = (scores.unsqueeze(1) + noise).topk(k).indices.sort().values
    return one_hot(kept, scores.shape[-1]).to(scores.dtype)


@pytest.mark.parametrize("antithetic", [False, True])
@pytest.mark.parametrize("control_variate", [False, True])
@pytest.mark.parametrize("k", [1, 3, 6])
def test_value_and_gradient_are_those_of_the_one_hots(
    k: int, control_variate: bool, antithetic: bool, monkeypatch: pytest.MonkeyPatch
):
    monkeypatch.setattr(topk_sampled, "_MAX_ELEMENTS", 100)  # several chunks
    scores = torch.randn(2, 7, dtype=torch.float64, requires_grad=True)
    upstream = torch.randn(2, k, 7, dtype=torch.float64)
    sigma, seed = torch.tensor(0.3, dtype=torch.float64), torch.tensor(11)
    indicator, _ = topk_sampled.sampled_indicator(
        scores, sigma, seed, k, 40, antithetic, control_variate, False
    )
    (grad,) = torch.autograd.grad(indicator, scores, upstream)
    noise = torch.cat(list(topk_sampled._noise(scores, seed, 40, antithetic)), dim=1)
    samples = one_hot_samples(scores.detach(), k, 0.3 * noise)
    torch.testing.assert_close(indicator, samples.mean(dim=1))
    worth = (samples * upstream.unsqueeze(1)).sum(dim=(-2, -1))
    if control_variate:
        unperturbed = one_hot_samples(scores.detach(), k, 0 * noise[:, :1])
        worth = worth - (unperturbed * upstream.unsqueeze(1)).sum(dim=(-2, -1))
    expected = torch.einsum("bs,bsl->bl", worth, noise) / (40 * 0.3)
    torch.testing.assert_close(grad, expected)


def test_the_diagonal_leaves_out_what_one_score_does_to_the_others():
    scores = torch.randn(2, 7, dtype=torch.float64, requires_grad=True)
    upstream = torch.randn(2, 3, 7, dtype=torch.float64)
    sigma, seed = torch.tensor(0.3, dtype=torch.float64), torch.tensor(11)
    indicator, _ = topk_sampled.sampled_indicator(scores, sigma, seed, 3, 40, False, False, True)
    (grad,) = torch.autograd.grad(indicator, scores, upstream)
    (noise,) = topk_sampled._noise(scores, seed, 40, False)
    samples = one_hot_samples(scores.detach(), 3, 0.3 * noise)
    expected = torch.einsum("bkl,bskl,bsl->bl", upstream, samples, noise) / (40 * 0.3)
    torch.testing.assert_close(grad, expected)


@pytest.mark.parametrize("options", [{}, {"antithetic": True}, {"control_variate": True}])
def test_gradient_is_unbiased(options: dict[str, bool]):
    torch.manual_seed(0)
    scores = (0.2 * torch.rand(6, dtype=torch.float64)).requires_grad_()
    upstream = torch.randn(3, 6, dtype=torch.float64)
    (true,) = torch.autograd.grad(perturbed_topk(scores, 3, 0.1), scores, upstream)
    copies = scores.detach().repeat(400, 1).requires_grad_()
    indicator = perturbed_topk(copies, 3, 0.1, method="sampled", num_samples=50, **options)
    (grads,) = torch.autograd.grad(indicator, copies, upstream.expand_as(indicator))
    error = grads.std(dim=0) / 20
    assert ((grads.mean(dim=0) - true).abs() < 4.5 * error).all()


def test_antithetic_pairs_and_the_control_variate_lower_the_variance():
    torch.manual_seed(0)
    scores = torch.rand(300, 8)
    upstream = torch.randn(5, 8) + 1.0  # a constant that only costs variance

    def variance(**options: bool) -> float:
        leaf = scores[:1].repeat(300, 1).requires_grad_()
        indicator = perturbed_topk(leaf, 5, 0.1, method="sampled", num_samples=40, **options)
        (grads,) = torch.autograd.grad(indicator, leaf, upstream.expand_as(indicator))
        return float(grads.var(dim=0).sum())

    plain = variance()
    assert variance(control_variate=True) < 0.5 * plain
    assert variance(antithetic=True) < 0.5 * plain


def test_a_seed_repeats_the_noise():
    scores = torch.rand(2, 7)

    def draw(seed: int) -> Tensor:
        generator = torch.Generator().manual_seed(seed)
        return perturbed_topk(scores, 3, 0.5, method="sampled", generator=generator)

    assert torch.equal(draw(1), draw(1))
    assert not torch.equal(draw(1), draw(2))


def test_two_draws_from_one_generator_differ():
    scores, generator = torch.rand(2, 7), torch.Generator().manual_seed(1)
    first = perturbed_topk(scores, 3, 0.5, method="sampled", generator=generator)
    second = perturbed_topk(scores, 3, 0.5, method="sampled", generator=generator)
    assert not torch.equal(first, second)


@pytest.mark.parametrize("use_reentrant", [False, True])
@pytest.mark.parametrize("method", ["sampled", "diagonal"])
def test_activation_checkpointing_sees_the_same_noise(method: str, use_reentrant: bool):
    scores = torch.randn(2, 7, requires_grad=True)
    tokens = torch.randn(2, 7, 4)

    def keep(s: Tensor) -> Tensor:
        return perturbed_topk(s, 3, 0.4, method=method, num_samples=20) @ tokens

    grads = []
    for run in (keep, lambda s: checkpoint(keep, s, use_reentrant=use_reentrant)):
        torch.manual_seed(5)
        scores.grad = None
        run(scores).square().sum().backward()
        grads.append(scores.grad)
    assert torch.equal(grads[0], grads[1])


def test_memory_does_not_grow_with_samples_times_kept_times_candidates():
    scores = torch.rand(1, 300, requires_grad=True)
    with torch.profiler.profile(profile_memory=True) as profile:
        indicator = perturbed_topk(scores, 150, 0.1, method="sampled", num_samples=200)
        indicator.sum().backward()
    largest = max(event.cpu_memory_usage for event in profile.events())
    assert largest < 200 * 150 * 300  # bytes: a quarter of the one-hots in float32


@pytest.mark.slow
def test_one_compiled_graph_serves_every_sigma():
    counter = CompileCounterWithBackend("aot_eager")
    compiled = torch.compile(
        lambda s, sigma: perturbed_topk(s, 3, sigma, method="sampled"), backend=counter
    )
    scores = torch.randn(2, 7, requires_grad=True)
    for sigma in torch.tensor([0.1, 0.05, 0.0]):
        indicator = compiled(scores, sigma)
        torch.testing.assert_close(indicator.sum(-1), torch.ones(2, 3))
        indicator.square().sum().backward()
    assert counter.frame_count == 1


def test_operators_keep_what_they_promise_to_the_compiler():
    scores, sigma, seed = torch.randn(2, 7, requires_grad=True), torch.tensor(0.3), torch.tensor(1)
    ops = torch.ops.tokenselect
    tests = ("test_schema", "test_autograd_registration", "test_faketensor")
    options = (False, True, False)
    torch.library.opcheck(
        ops.sampled_indicator.default, (scores, sigma, seed, 3, 20, *options), test_utils=tests
    )
    kept = torch.zeros(2, 3, 20, dtype=torch.int32)
    arguments = (torch.randn(2, 3, 7), scores.detach(), sigma, seed, kept, *options)
    torch.library.opcheck(ops.sampled_gradient.default, arguments, test_utils=tests)


def test_bad_numbers_of_samples_are_named():
    with pytest.raises(ValueError, match="num_samples must be at least 1, got 0"):
        perturbed_topk(torch.randn(5), 2, 0.1, method="sampled", num_samples=0)
    with pytest.raises(ValueError, match="num_samples must be even for antithetic pairs, got 5"):
        perturbed_topk(torch.randn(5), 2, 0.1, method="sampled", num_samples=5, antithetic=True)


def test_an_empty_batch_is_served():
    assert perturbed_topk(torch.randn(0, 5), 2, 0.1, method="sampled").shape == (0, 2, 5)
