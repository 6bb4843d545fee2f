"""Methods for tokens that go to a language model, against slow and obvious code."""

import pytest
import torch
import torch.nn.functional as F

from tokenselect import Site, TokenGrid
from tokenselect.selectors import build_selector
from tokenselect.selectors.baselines import spread_scores


def grid_of(t: int = 3, h: int = 4, w: int = 5, c: int = 8) -> TokenGrid:
    torch.manual_seed(0)
    return TokenGrid.from_patches(torch.randn(2, t, h, w, c)).placed()


def choose(method: str, grid: TokenGrid, keep: tuple[int, int] = (2, 2)) -> torch.Tensor:
    selector = build_selector(
        Site("S", 0, keep), channels=8, method=method, is_sequence=True
    ).eval()
    return selector(grid).positions


def test_each_token_chosen_for_diversity_is_the_farthest_from_those_before():
    tokens = torch.randn(2, 11, 6, generator=torch.Generator().manual_seed(0))
    scores = spread_scores(tokens, 5)
    for clip, ranks in zip(F.normalize(tokens, dim=-1), scores, strict=True):
        order = ranks.argsort(descending=True)[:5].tolist()
        assert int((ranks > 0).sum()) == 5
        for turn in range(1, 5):
            rest = [i for i in range(11) if i not in order[:turn]]
            gaps = [min(1 - float(clip[i] @ clip[j]) for j in order[:turn]) for i in rest]
            assert rest[gaps.index(max(gaps))] == order[turn]


def test_diversity_drops_copies_first():
    distinct = torch.randn(1, 6, 8, generator=torch.Generator().manual_seed(0))
    tokens = torch.cat([distinct, distinct[:, :4]], dim=1)
    kept = spread_scores(tokens, 6).topk(6).indices[0] % 6
    assert sorted(kept.tolist()) == [0, 1, 2, 3, 4, 5]


def test_tokens_that_repeat_the_frame_before_go_first():
    patches = grid_of().patches.clone()
    patches[:, 1] = 3 * patches[:, 0]  # longer, but of the same direction
    patches[:, 2] = patches[:, 0]
    patches[:, 1, 2, 3], patches[:, 2, 0, 1] = -patches[:, 0, 2, 3], -patches[:, 0, 0, 1]
    kept = choose("evs", TokenGrid.from_patches(patches).placed(), (4, 2))  # 24 of 60
    expected = {*range(20), 20 + 2 * 5 + 3, 40 + 2 * 5 + 3, 40 + 1}
    assert expected - {40 + 2 * 5 + 3} <= set(kept[0].tolist())


def test_text_without_a_prompt_is_refused():
    with pytest.raises(ValueError, match=r"as wide as the tokens \(8\), got none"):
        choose("text", grid_of())


def test_text_of_another_width_is_refused():
    grid = TokenGrid(torch.randn(1, 60, 8), (3, 4, 5), prompt=torch.randn(1, 2, 6))
    with pytest.raises(ValueError, match=r"as wide as the tokens \(8\), got width 6"):
        choose("text", grid)


@pytest.mark.parametrize("method", ["evs", "diversity", "text"])
def test_loose_tokens_are_refused_where_blocks_need_a_grid(method):
    with pytest.raises(ValueError, match="one by one"):
        build_selector(Site("S", 0, 0.5), channels=8, method=method)


@pytest.mark.parametrize("method", ["evs", "diversity"])
def test_frames_are_chosen_too(method):
    selector = build_selector(Site("T", 0, 2), channels=8, method=method)
    assert selector(grid_of()).thw == (2, 4, 5)
