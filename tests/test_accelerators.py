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

from tests.contracts import hosts
from tests.small_models import tiny_mvit, tiny_swin
from tokenselect.insertion import insert_selectors, set_sigma
from tokenselect.ops import hard_topk
from tokenselect.ops.topk_exact import exact_topk, exact_topk_gradient
from tokenselect.ops.topk_hard import rank_topk


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


def infer(model: nn.Module, clips: Tensor) -> Tensor:
    with NoDoubles(), torch.inference_mode():
        answer = model.eval()(clips)
    return answer if isinstance(answer, Tensor) else answer.logits


def train(model: nn.Module, clips: Tensor) -> None:
    """One step: forward, backward, AdamW."""
    optimizer = torch.optim.AdamW(model.parameters(), capturable=False, foreach=True)
    labels = torch.zeros(len(clips), dtype=torch.long, device="meta")
    with NoDoubles():
        answer = model.train()(clips)
        logits = answer if isinstance(answer, Tensor) else answer.logits
        nn.functional.cross_entropy(logits, labels).backward()
    optimizer.step()


@pytest.mark.parametrize("build", [tiny_mvit, tiny_swin])
@pytest.mark.parametrize("scorer", ["paper", "taught"])
def test_our_models_run_and_train_without_a_look_at_values(build: Callable[..., Any], scorer: str):
    model = build("T0=3-S1=4x5" if build is tiny_mvit else "T0=3-S1=4x4", scorer=scorer)
    set_sigma(model, torch.tensor(0.1))
    model = model.to("meta")
    clips = torch.empty(2, 3, *model.default_input, device="meta")
    assert infer(model, clips).shape == (2, 5)
    train(model, clips)


@pytest.mark.parametrize("method", ["uniform", "random", "motion", "merge"])
def test_methods_without_training_run_without_a_look_at_values(method: str):
    model = tiny_mvit("T0=3", method=method).to("meta")
    clips = torch.empty(2, 3, *model.default_input, device="meta")
    assert infer(model, clips).shape == (2, 5)


HOSTS = {
    hosts.mvit_v1: (2, 3, 10, 48, 32),
    hosts.swin3d: (2, 3, 10, 48, 32),
    hosts.videomae: (2, 10, 3, 48, 32),
    hosts.vivit: (2, 10, 3, 48, 32),
}


@pytest.mark.parametrize("build", HOSTS)
def test_models_of_other_libraries_run_and_train_without_a_look_at_values(
    build: Callable[[], nn.Module],
):
    model = insert_selectors(build(), "T0=3").to("meta")
    clips = torch.empty(HOSTS[build], device="meta")
    infer(model, clips)
    train(model, clips)


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
