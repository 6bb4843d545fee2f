"""Every method trains a step in both backbones under autocast, in bfloat16 and in float16."""

import pytest
import torch
import torch.nn.functional as F
from torch import Tensor, nn

from tests.small_models import tiny_mvit, tiny_swin
from tokenselect.selectors import METHODS
from tokenselect.selectors.build import SCORERS, has_parameters, has_scorer

BACKBONES = {"mvit": tiny_mvit, "swin": tiny_swin}
DTYPES = [torch.bfloat16, torch.float16]
FRAMES_ONLY = ("gumbel", "merge", "rlt", "evs", "diversity")
NEEDS_PROMPT = "text"  # of a video-language model


def cases() -> list[tuple[str, str, str]]:
    found = [
        (backbone, method, scorer)
        for backbone in BACKBONES
        for method in METHODS
        for scorer in (SCORERS if has_scorer(method) else ("paper",))
        if method != NEEDS_PROMPT
    ]
    return [case for case in found if case[:2] != ("swin", "attention")]  # no class token


def take_step(model: nn.Module, dtype: torch.dtype | None) -> tuple[Tensor, Tensor]:
    """Train a step; return the loss and the backbone's gradient."""
    torch.manual_seed(2)
    video = torch.randn(2, 3, *model.default_input)
    model.zero_grad()
    with torch.autocast("cpu", dtype, enabled=dtype is not None):
        loss = F.cross_entropy(model.train()(video).float(), torch.tensor([1, 2]))
    loss.backward()
    torch.optim.SGD(model.parameters(), lr=0.0).step()
    named = model.named_parameters()
    gradient = [p.grad.flatten() for n, p in named if not n.startswith("token_selectors.")]
    return loss.detach(), torch.cat(gradient)


@pytest.mark.parametrize("dtype", DTYPES, ids=str)
@pytest.mark.parametrize(("backbone", "method", "scorer"), cases())
def test_a_step_is_near_that_of_single_precision(backbone, method, scorer, dtype):
    site = {"attention": "T1=2-S1=3x2"}.get(method, "T0=3-S1=4x5")
    plan = "T1=2" if method in FRAMES_ONLY else site
    torch.manual_seed(0)
    model = BACKBONES[backbone](plan, method=method, scorer=scorer)
    exact, expected = take_step(model, None)
    loss, gradient = take_step(model, dtype)
    assert abs(loss - exact) < 0.05
    assert torch.cosine_similarity(gradient, expected, dim=0) > 0.9
    for label, selector in model.token_selectors.items():
        gradients = [p.grad for p in selector.parameters()]
        assert all(g.isfinite().all() for g in gradients)
        assert not has_parameters(method) or any(g.abs().max() > 0 for g in gradients), label


@torch.no_grad()
@pytest.mark.parametrize("dtype", DTYPES, ids=str)
@pytest.mark.parametrize("build", BACKBONES.values(), ids=BACKBONES.keys())
def test_a_model_of_low_precision_answers(build, dtype):
    torch.manual_seed(0)
    model = build("T0=3-S1=4x5", method="uniform")
    video = torch.randn(2, 3, *model.default_input)
    expected = model(video)
    logits = model.to(dtype)(video.to(dtype))
    assert logits.dtype == dtype
    torch.testing.assert_close(logits.float(), expected, atol=0.1, rtol=0.1)
