"""What every adapter must hold, whatever model it reads.

Keeping everything is not enough: it also passes for an adapter that misreads the token order.
"""

import pytest
import torch
from torch import nn

from tests.contracts.models import CASES, Case
from tokenselect import insert_selectors, record_selections, remove_selectors
from tokenselect.adapters import find_adapter

KEPT = (0, 2, 3)


@pytest.fixture(params=CASES, ids=lambda case: case.name)
def case(request) -> Case:
    torch.manual_seed(0)
    return request.param


@torch.no_grad()
def test_keeping_everything_is_the_untouched_model(case):
    model, video = case.build(), case.video()
    dense = model(video)
    insert_selectors(model, "T0_1-S1_1-T2_1")
    assert torch.equal(model(video), dense)


@torch.no_grad()
def test_kept_frames_are_those_cut_by_hand_after_the_embedding(case):
    model, video = case.build(), case.video()
    by_hand = case.run_on_frames(model, video, KEPT)
    insert_selectors(model, f"T0={len(KEPT)}", method="uniform")
    choose_frames(model, KEPT)
    torch.testing.assert_close(model(video), by_hand, rtol=0, atol=1e-6)


@torch.no_grad()
def test_the_hooked_model_is_the_plain_loop(case):
    model, video = case.build(), case.video()
    insert_selectors(model, "T0_0.6-S0_0.5-T2_0.7-S2_0.8")
    adapter = find_adapter(model)
    if case.is_ours:
        assert torch.equal(model(video), run_loop(model, video))
    with record_selections(model) as selections:
        model(video)
    assert list(selections) == ["T0", "S0", "T2", "S2"]
    assert len(adapter.blocks(model)) >= 3


@torch.no_grad()
def test_removal_leaves_no_key_and_no_hook(case):
    model, video = case.build(), case.video()
    keys, dense = list(model.state_dict()), model(video)
    insert_selectors(model, "T0_0.6-S2_0.5")
    assert [key for key in model.state_dict() if not key.startswith("token_selectors.")] == keys
    assert not torch.equal(model(video), dense)
    remove_selectors(model)
    assert list(model.state_dict()) == keys
    assert not any(m._forward_pre_hooks or m._forward_hooks for m in model.modules())
    assert torch.equal(model(video), dense)


def choose_frames(model: nn.Module, frames: tuple[int, ...]) -> None:
    """Make the selector of T0 keep these frames."""
    scoring = model.token_selectors["T0"].scoring

    def score_frames(grid, *, keep):
        scores = torch.zeros(grid.tokens.shape[0], grid.thw[0])
        scores[:, list(frames)] = 1.0
        return scores

    scoring.score_frames = score_frames


def run_loop(model: nn.Module, video: torch.Tensor) -> torch.Tensor:
    """Run a backbone of ours block by block, selectors called by hand (no hook fires)."""
    selectors = model.token_selectors
    grid = model.embed(video)
    for index, block in enumerate(model.blocks):
        for selector in selectors.before(index):
            grid = selector(grid)
        grid = block.forward(grid)
    return model.head(grid)
