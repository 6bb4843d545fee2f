"""What must hold for any scores: order of the input, shifts and permutations."""

import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from torch import nn

from tokenselect.grid import TokenGrid
from tokenselect.ops.topk_hard import hard_topk
from tokenselect.plan import Site
from tokenselect.selectors import build_selector

C = 4
SCORES = st.lists(st.integers(-50, 50), min_size=2, max_size=9, unique=True)


class FirstChannel(nn.Module):
    """A scorer that reads the scores off the tokens, plus a shift."""

    def __init__(self, shift: float = 0.0) -> None:
        super().__init__()
        self.shift = shift

    def forward(self, candidates):
        return candidates[..., 0] + self.shift


def clip_of(scores: list[int]) -> TokenGrid:
    patches = torch.randn(1, len(scores), 2, 3, C)
    patches[0, :, :, :, 0] = torch.tensor(scores, dtype=torch.float32)[:, None, None]
    return TokenGrid.from_patches(patches)


def select_frames(grid: TokenGrid, keep: int, shift: float = 0.0) -> TokenGrid:
    selector = build_selector(Site("T", 0, count=keep), channels=C, scorer="paper").eval()
    selector.scoring.network = FirstChannel(shift)
    return selector(grid)


@settings(deadline=None)
@given(SCORES, st.data())
def test_the_kept_frames_are_the_best_in_their_order(scores, data):
    keep = data.draw(st.integers(1, len(scores)))
    kept = select_frames(clip_of(scores), keep).patches[0, :, 0, 0, 0].tolist()
    best = sorted(sorted(scores, reverse=True)[:keep], key=scores.index)
    assert kept == best


@settings(deadline=None)
@given(SCORES, st.integers(-100, 100), st.data())
def test_a_shift_of_all_scores_keeps_the_same_frames(scores, shift, data):
    keep = data.draw(st.integers(1, len(scores)))
    grid = clip_of(scores)
    assert torch.equal(select_frames(grid, keep).tokens, select_frames(grid, keep, shift).tokens)


@settings(deadline=None)
@given(SCORES, st.data())
def test_a_permutation_of_the_clip_permutes_what_is_kept(scores, data):
    keep = data.draw(st.integers(1, len(scores)))
    order = data.draw(st.permutations(range(len(scores))))
    grid = clip_of(scores)
    moved = TokenGrid.from_patches(grid.patches[:, list(order)])
    kept, kept_moved = select_frames(grid, keep), select_frames(moved, keep)
    assert {frame.sum().item() for frame in kept.patches[0]} == {
        frame.sum().item() for frame in kept_moved.patches[0]
    }


@given(st.lists(st.integers(-3, 3), min_size=1, max_size=9), st.data())
def test_indices_rise_and_are_no_fewer_than_asked(scores, data):
    keep = data.draw(st.integers(1, len(scores)))
    indices = hard_topk(torch.tensor(scores, dtype=torch.float32), keep).tolist()
    assert indices == sorted(set(indices)) and len(indices) == keep
