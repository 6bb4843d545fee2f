"""What an accelerator needs, proved on the meta device: it holds no values, so none can be read.

There `.item()`, a branch on a tensor and a shape that depends on values raise errors. Nothing waits
for the device then, and all shapes are known before the start, which CUDA graphs need, too.
"""

from collections.abc import Callable
from typing import Any

import pytest
import torch
from torch import Tensor, nn
from torch.utils._python_dispatch import TorchDispatchMode
from torch.utils._pytree import tree_leaves

from tests.export.test_hosts import HOSTS
from tests.small_models import tiny_mvit, tiny_swin
from tokenselect.export.formats import LogitsOf
from tokenselect.insertion import insert_selectors, selectors_of, set_sigma
from tokenselect.ops import hard_topk
from tokenselect.ops.topk_exact import exact_topk, exact_topk_gradient
from tokenselect.ops.topk_hard import rank_topk
from tokenselect.training.optimizer import build_optimizer
from tokenselect.training.step import Precision, train_step


class NoDoubles(TorchDispatchMode):
    """Refuses float64, which Apple's devices do not have."""

    def __torch_dispatch__(
        self, func: Any, types: Any, args: Any = (), kwargs: dict[str, Any] | None = None
    ) -> Any:
        result = func(*args, **(kwargs or {}))
        for tensor in tree_leaves(result):
            if isinstance(tensor, Tensor) and tensor.dtype == torch.float64:
                raise AssertionError(f"{func} gives float64")
        return result


def logits_of(model: nn.Module) -> LogitsOf:
    """Let a model take clips and give logits, as an exported file does."""
    selectors = selectors_of(model)
    return LogitsOf(model, takes_list=selectors is not None and selectors.adapter.takes_list)


def infer(model: nn.Module, clips: Tensor) -> Tensor:
    with NoDoubles(), torch.inference_mode():
        return logits_of(model.eval())(clips)


def train(model: nn.Module, clips: Tensor) -> None:
    """One step: forward, backward, AdamW."""
    optimizer = torch.optim.AdamW(model.parameters(), capturable=False, foreach=True)
    with NoDoubles():
        logits = logits_of(model.train())(clips).flatten(1)
        labels = torch.zeros(len(logits), dtype=torch.long, device="meta")
        nn.functional.cross_entropy(logits, labels).backward()
    optimizer.step()


@pytest.mark.parametrize("build", [tiny_mvit, tiny_swin])
@pytest.mark.parametrize("scorer", ["paper", "taught"])
def test_our_models_run_and_train_without_a_look_at_values(build: Callable[..., Any], scorer: str):
    model = build("T0=3-S1=4x5" if build is tiny_mvit else "T0=3-S1=4x4", scorer=scorer)
    set_sigma(model, torch.tensor(0.1))
    if scorer == "taught":
        model.token_selectors["T0"].scoring.is_spaced = True
    model = model.to("meta")
    clips = torch.empty(2, 3, *model.default_input, device="meta")
    assert infer(model, clips).shape == (2, 5)
    train(model, clips)


@pytest.mark.parametrize("method", ["uniform", "random", "motion", "merge"])
def test_methods_without_training_run_without_a_look_at_values(method: str):
    model = tiny_mvit("T0=3", method=method).to("meta")
    clips = torch.empty(2, 3, *model.default_input, device="meta")
    assert infer(model, clips).shape == (2, 5)


# In a vision-language model, where videos begin and end in the sequence are values: not these.
EVERY_HOST = {name: host for name, host in HOSTS.items() if len(host[1]) > 3}


def build_host(name: str) -> tuple[nn.Module, tuple[int, ...]]:
    build, (first, *rest), plan = EVERY_HOST[name]
    is_batch = len(rest) == 4  # else a clip's frames
    return insert_selectors(build(), plan, scorer="paper"), (2 if is_batch else first, *rest)


@pytest.mark.parametrize("host", EVERY_HOST)
def test_models_of_other_libraries_run_and_train_without_a_look_at_values(host: str):
    model, shape = build_host(host)
    model, clips = model.to("meta"), torch.empty(shape, device="meta")
    infer(model, clips)
    train(model, clips)


@pytest.mark.slow
@pytest.mark.parametrize("host", EVERY_HOST)
def test_models_of_other_libraries_compile_as_one_graph(host: str):
    model, shape = build_host(host)
    clips, logits = torch.randn(shape), logits_of(model.eval())
    torch._dynamo.reset()
    with torch.no_grad():
        compiled = torch.compile(logits, fullgraph=True, backend="eager")
        torch.testing.assert_close(compiled(clips), logits(clips), rtol=1e-4, atol=1e-5)


def test_a_step_of_the_training_loop_makes_no_float64():
    model = tiny_mvit("T0=3")
    clips, labels = torch.randn(2, 3, *model.default_input), torch.zeros(2, dtype=torch.long)
    precision = Precision("fp32", torch.device("cpu"))
    with NoDoubles():
        train_step(model, [(clips, labels)], build_optimizer(model), precision=precision)


@pytest.mark.parametrize("k", [1, 2, 5, 6])
def test_the_exact_top_k_itself_runs_without_a_look_at_values(k: int):
    scores, sigma = torch.empty(3, 7, device="meta"), torch.empty((), device="meta")
    with NoDoubles():
        indicator = exact_topk._init_fn(scores, sigma, k)
        assert indicator.shape == (3, k, 7)
        change = exact_topk_gradient._init_fn(indicator, scores, sigma, indicator)
    assert change.shape == scores.shape


def test_a_look_at_values_would_be_found():
    class Looks(nn.Module):
        def forward(self, clips: Tensor) -> Tensor:
            return clips[clips > 0] if clips.max().item() > 0 else clips

    with pytest.raises(RuntimeError, match="meta"):
        infer(Looks(), torch.empty(2, 3, device="meta"))
    linear = nn.Linear(3, 2, device="meta", dtype=torch.float64)
    with pytest.raises(AssertionError, match="float64"):
        infer(linear, torch.empty(2, 3, device="meta", dtype=torch.float64))


def test_nan_scores_keep_indices_that_exist():
    scores = torch.full((2, 5), float("nan"))
    assert hard_topk(scores.to("meta"), 3).shape == (2, 3)
    assert rank_topk(scores, 3).max() < 5
