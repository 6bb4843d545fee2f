"""Selectors on grids whose right answer is known."""

import pytest
import torch
from torch import nn

from tokenselect.grid import TokenGrid
from tokenselect.ops.anchors import average_anchors
from tokenselect.ops.topk_hard import hard_topk
from tokenselect.plan import Site
from tokenselect.selectors import build_selector
from tokenselect.selectors.scoring import LearnedScoring, central_patches
from tokenselect.selectors.taught import (
    PatchNetwork,
    TaughtScoring,
    average_places,
    share_side,
    space_out,
)

T, H, W, C = 5, 7, 6, 8


class FirstChannel(nn.Module):
    """A scorer that reads the answer off the tokens."""

    def forward(self, candidates):
        return candidates[..., 0]


def make_grid(patches, num_prefix=1):
    return TokenGrid.from_patches(patches, torch.randn(patches.shape[0], num_prefix, C))


def make_selector(site, **settings):
    selector = build_selector(site, channels=C, **{"scorer": "paper", **settings})
    if isinstance(selector.scoring, LearnedScoring):
        selector.scoring.network = FirstChannel()
    return selector.eval()


def test_the_bright_frames_stay_in_their_order():
    patches = torch.randn(2, T, H, W, C)
    patches[..., 0] = 0
    patches[0, [4, 1, 2], ..., 0] = torch.tensor([9.0, 7.0, 8.0])[:, None, None]
    patches[1, [0, 3, 4], ..., 0] = 5
    grid = make_grid(patches)
    kept = make_selector(Site("T", 0, 3))(grid)
    assert kept.thw == (3, H, W)
    assert torch.equal(kept.patches[0], patches[0, [1, 2, 4]])
    assert torch.equal(kept.patches[1], patches[1, [0, 3, 4]])
    assert torch.equal(kept.prefix, grid.prefix)


def test_the_bright_region_is_cut_out_of_each_frame():
    patches = torch.randn(1, T, H, W, C)
    patches[..., 0] = 0
    corners = [(0, 0), (3, 2), (1, 1), (3, 0), (2, 2)]
    for frame, (row, column) in enumerate(corners):
        patches[0, frame, row : row + 4, column : column + 4, 0] = 1
    grid = make_grid(patches)
    kept = make_selector(Site("S", 0, (4, 4)), stride=(1, 1))(grid)
    assert kept.thw == (T, 4, 4)
    for frame, (row, column) in enumerate(corners):
        crop = patches[0, frame, row : row + 4, column : column + 4]
        assert torch.equal(kept.patches[0, frame], crop)
    assert torch.equal(kept.prefix, grid.prefix)


def test_tokenwise_selection_keeps_the_bright_patches_in_their_order():
    patches = torch.randn(2, T, H, W, C)
    patches[..., 0] = torch.rand(2, T, H, W)
    kept = make_selector(Site("S", 0, (3, 2)), tokenwise=True)(make_grid(patches))
    best = patches[1, 3].flatten(0, 1)[:, 0].topk(6).indices.sort().values
    assert kept.thw == (T, 3, 2)
    assert torch.equal(kept.patches[1, 3].flatten(0, 1), patches[1, 3].flatten(0, 1)[best])


@pytest.mark.parametrize("site", [Site("T", 0, 1.0), Site("S", 0, 1.0)])
@pytest.mark.parametrize("is_training", [False, True])
def test_keeping_all_changes_nothing(site, is_training):
    grid = make_grid(torch.randn(2, T, H, W, C))
    selector = build_selector(site, channels=C).train(is_training)
    assert torch.equal(selector(grid).tokens, grid.tokens)


@pytest.mark.parametrize(
    ("site", "settings"),
    [
        (Site("T", 0, 3), {}),
        (Site("S", 0, (4, 3)), {}),
        (Site("S", 0, (4, 3)), {"tokenwise": True}),
    ],
)
@pytest.mark.parametrize("method", ["stts-exact", "stts-sampled"])
def test_little_noise_in_training_is_hard_selection(site, settings, method):
    torch.manual_seed(0)
    selector = make_selector(site, method=method, sigma=1e-5, num_samples=8, **settings)
    patches = torch.randn(2, T, H, W, C)
    patches[..., 0] = torch.randperm(2 * T * H * W).reshape(2, T, H, W).float()
    grid = make_grid(patches)
    hard = selector.eval()(grid)
    soft = selector.train()(grid)
    assert soft.thw == hard.thw
    torch.testing.assert_close(soft.tokens, hard.tokens)


@pytest.mark.parametrize(
    ("site", "settings"),
    [
        (Site("T", 0, 3), {}),
        (Site("T", 0, 3), {"method": "gumbel"}),
        (Site("T", 0, 3), {"scorer": "released"}),
        (Site("S", 0, (4, 3)), {}),
        (Site("S", 0, (4, 3)), {"scorer": "released"}),
        (Site("S", 0, (4, 3)), {"scorer": "anchor-features"}),
        (Site("S", 0, (4, 3)), {"tokenwise": True}),
    ],
)
def test_gradients_reach_every_parameter_that_can_move_a_choice(site, settings):
    """All but those that shift every score alike, which the rescaling takes out (see `Scorer`)."""
    torch.manual_seed(0)
    selector = build_selector(site, channels=C, **{"scorer": "paper", **settings}).train()
    kept = selector(make_grid(torch.randn(3, T, H, W, C)))
    (kept.patches * torch.randn_like(kept.patches)).sum().backward()
    for name, parameter in selector.named_parameters():
        assert parameter.grad is not None and parameter.grad.isfinite().all(), name
        if name == "scoring.network.score.weight":
            assert parameter.grad[:, : C // 2].abs().max() > 1e-4  # the local half
        elif not name.endswith(("score.bias", "score.4.bias")):
            assert parameter.grad.abs().max() > 1e-6, name


def test_the_global_half_of_the_papers_scorer_moves_no_choice():
    torch.manual_seed(0)
    grid = make_grid(torch.randn(3, T, H, W, C))
    selector = build_selector(Site("T", 0, 3), channels=C, scorer="paper")
    before = selector.scoring.score_frames(grid, keep=3)
    with torch.no_grad():
        selector.scoring.network.score.weight[:, C // 2 :] += 3.0
        selector.scoring.network.score.bias += 1.0
    torch.testing.assert_close(selector.scoring.score_frames(grid, keep=3), before)


def test_frames_are_scored_alike_wherever_they_stand():
    """A permutation of the frames permutes the scores and leaves the kept set alone."""
    torch.manual_seed(0)
    selector = build_selector(Site("T", 0, 3), channels=C, scorer="paper").eval()
    patches = torch.randn(2, T, H, W, C)
    order = torch.randperm(T)
    scores = selector.scoring.score_frames(make_grid(patches), keep=3)
    moved = selector.scoring.score_frames(make_grid(patches[:, order]), keep=3)
    torch.testing.assert_close(moved, scores[:, order])


@pytest.mark.parametrize("scorer", ["from-uniform", "taught"])
@pytest.mark.parametrize("t", [1, 2, 5, 8, 9])
def test_a_scorer_on_top_of_uniform_begins_as_uniform_frames(t, scorer):
    grid = make_grid(torch.randn(2, t, H, W, C))
    for keep in range(1, t + 1):
        kept = [
            build_selector(Site("T", 0, count=keep), channels=C, **settings).eval()(grid).tokens
            for settings in ({"scorer": scorer}, {"method": "uniform"})
        ]
        assert torch.equal(*kept), (t, keep)


@pytest.mark.parametrize("scorer", ["from-uniform", "taught"])
@pytest.mark.parametrize("side", [(4, 3), (3, 3), (5, 2)])
def test_a_scorer_on_top_of_uniform_begins_in_the_middle_of_the_picture(side, scorer):
    grid = make_grid(torch.randn(2, T, H, W, C))
    kept = [
        build_selector(Site("S", 0, side), channels=C, **settings).eval()(grid).tokens
        for settings in ({"scorer": scorer}, {"method": "uniform"})
    ]
    assert torch.equal(*kept)


@pytest.mark.parametrize("scorer", ["from-uniform", "taught"])
@pytest.mark.parametrize("site", [Site("T", 0, 2), Site("S", 0, (3, 3))])
def test_a_scorer_on_top_of_uniform_learns_to_leave_it(site, scorer):
    """The loss wants what lies at the edge: the last frames, or the last corner."""
    torch.manual_seed(0)
    selector = build_selector(site, channels=C, scorer=scorer, sigma=0.3).train()
    patches = torch.randn(4, T, H, W, C)
    marked = patches.clone()
    where = (slice(None), slice(T - 2, T)) if site.kind == "T" else (..., slice(4, 7), slice(3, 6))
    marked[(*where, slice(None))][..., 0] += 5.0
    grid = make_grid(marked)
    optimizer = torch.optim.Adam(selector.parameters(), lr=2e-2)
    for _ in range(60):
        optimizer.zero_grad()
        (-selector(grid).patches[..., 0].mean()).backward()
        optimizer.step()
    kept = selector.eval()(grid).patches
    assert kept[..., 0].mean() > 4.0


def test_spaced_out_scores_keep_the_frames_that_are_worth_most_beside_those_kept_before():
    """The obvious way: take the best frame, lower its neighbours, and again."""
    torch.manual_seed(0)
    scores, repetition = torch.randn(20, 9), torch.tensor([1.5, 0.7, 0.2])
    for keep in (1, 2, 4, 9):
        spaced = space_out(scores, keep, repetition)
        for own, found in zip(scores, hard_topk(spaced, keep), strict=True):
            left, taken = own.clone(), []
            for _ in range(keep):
                taken.append(max(set(range(9)) - set(taken), key=lambda place: left[place]))
                for gap, loss in enumerate(repetition, start=1):
                    for place in (taken[-1] - gap, taken[-1] + gap):
                        if 0 <= place < 9:
                            left[place] -= loss
            assert found.tolist() == sorted(taken)


def test_frames_that_repeat_each_other_are_kept_apart_until_selection_is_even():
    """Before and after saving; a scorer that knows of no repetition leaves its scores alone."""
    torch.manual_seed(0)
    scoring = TaughtScoring("T", C)
    nn.init.normal_(scoring.network.score.weight)
    with torch.no_grad():
        scoring.network.repetition[0] = 1e3
    grid = make_grid(torch.randn(4, 8, H, W, C))
    plain = scoring.score_frames(grid, keep=3)
    scoring.trust(0.0, 1.0)
    loaded = TaughtScoring("T", C)
    loaded.load_state_dict(scoring.state_dict())
    kept = hard_topk(loaded.score_frames(grid, keep=3), 3)
    assert loaded.is_spaced and (kept.diff(dim=1) > 1).all()
    assert (hard_topk(plain, 3).diff(dim=1) == 1).any()
    loaded.trust(1.0, 1.0)
    even = TaughtScoring("T", C).score_frames(grid, keep=3)
    assert torch.equal(hard_topk(loaded.score_frames(grid, keep=3), 3), hard_topk(even, 3))


def test_nan_scores_are_refused():
    grid = make_grid(torch.full((1, T, H, W, C), torch.nan))
    with pytest.raises(ValueError, match="NaN"):
        build_selector(Site("T", 0, 3), channels=C).eval()(grid)


def test_random_selection_differs_from_call_to_call_and_favours_nobody():
    torch.manual_seed(0)
    selector = build_selector(Site("T", 0, 2), channels=C, method="random")
    seen = []
    selector.recorders.append(lambda selection: seen.append(selection.indices))
    for _ in range(40):
        selector(make_grid(torch.zeros(10, T, H, W, C)))
    counts = torch.cat(seen).flatten().bincount(minlength=T)
    assert counts.sum() == 800
    assert (counts - 160).abs().max() < 60  # five standard deviations


def test_random_regions_favour_no_anchor():
    torch.manual_seed(0)
    selector = build_selector(Site("S", 0, (5, 4)), channels=C, method="random", stride=(1, 1))
    seen = []
    selector.recorders.append(lambda selection: seen.append(selection.indices))
    for _ in range(40):
        selector(make_grid(torch.zeros(10, T, H, W, C)))
    counts = torch.cat(seen).flatten().bincount(minlength=9)
    assert (counts - 2000 / 9).abs().max() < 5 * (2000 * 8 / 81) ** 0.5


@pytest.mark.parametrize(("keep", "frames"), [(1, [2]), (2, [1, 3]), (3, [0, 2, 4]), (5, range(5))])
def test_uniform_frames_are_evenly_spaced(keep, frames):
    selector = build_selector(Site("T", 0, count=keep), channels=C, method="uniform")
    grid = make_grid(torch.randn(2, T, H, W, C))
    assert torch.equal(selector(grid).patches, grid.patches[:, list(frames)])


@torch.no_grad()
def test_a_patch_is_scored_by_the_patches_around_it_in_its_frame():
    torch.manual_seed(0)
    network, features = PatchNetwork(8), torch.randn(1, 2, 20, 20, 8)
    moved = features.clone()  # two patches change places: the frame's average stays
    moved[0, 0, 3, 3], moved[0, 0, 16, 16] = features[0, 0, 16, 16], features[0, 0, 3, 3]
    change = (network(moved) - network(features)).abs()  # (1, 2, 20, 20)
    assert change[0, 0, 5, 5] > 1e-5 and change[0, 0, 14, 14] > 1e-5
    assert change[0, 0, 10, 10] < 1e-6 and change[0, 1].max() < 1e-6


@pytest.mark.parametrize("free", [4, 7, 14, 15, 22])
def test_a_taught_region_that_went_back_to_even_is_the_uniform_one(free):
    grid = TokenGrid.from_patches(torch.randn(2, 3, free + 3, free + 2, C))
    site, kept = Site("S", 0, (3, 2)), []
    for settings in ({"scorer": "taught"}, {"method": "uniform"}):
        selector = build_selector(site, channels=C, **settings).eval()
        if "scorer" in settings:
            torch.nn.init.normal_(selector.scoring.network.score.weight)
            selector.scoring.trust(1.0, 1.0)
        kept.append(selector(grid).tokens)
    assert torch.equal(*kept)


def test_the_uniform_region_is_the_centre():
    selector = build_selector(Site("S", 0, (3, 2)), channels=C, method="uniform", stride=(1, 1))
    grid = make_grid(torch.randn(2, T, H, W, C))
    assert torch.equal(selector(grid).patches, grid.patches[:, :, 2:5, 2:4])


def test_motion_keeps_what_moves():
    patches = torch.zeros(1, T, H, W, C)
    patches[0, 3, 5:, 3:] = 1.0
    frames = build_selector(Site("T", 0, 2), channels=C, method="motion")
    assert torch.equal(frames(make_grid(patches)).patches, patches[:, 3:])
    region = build_selector(Site("S", 0, (2, 3)), channels=C, method="motion", stride=(1, 1))
    assert torch.equal(region(make_grid(patches)).patches[0, 3], patches[0, 3, 5:, 3:])


def test_novelty_keeps_what_stands_out():
    patches = torch.zeros(1, T, H, W, C)
    patches[0, 1] = 1.0
    kept = build_selector(Site("T", 0, count=1), channels=C, method="novelty")(make_grid(patches))
    assert torch.equal(kept.patches, patches[:, 1:2])


@pytest.mark.parametrize(
    ("site", "settings", "message"),
    [
        (Site("S", 4, 0.5), {"method": "gumbel"}, "frames only, got site S4_0.5"),
        (Site("T", 0, 0.5), {"method": "attention"}, "before block 0"),
        (Site("T", 0, 0.5), {"method": "magic"}, "one of stts.*got 'magic'"),
        (Site("T", 0, 0.5), {"scorer": "magic"}, "one of paper.*got 'magic'"),
        (Site("T", 0, 0.5), {"sigma": -0.1}, "sigma must be 0 or more, got -0.1"),
    ],
)
def test_what_cannot_be_is_refused_by_name(site, settings, message):
    with pytest.raises(ValueError, match=message):
        build_selector(site, channels=C, **settings)


def test_attention_without_attention_is_refused():
    selector = build_selector(Site("T", 4, 0.5), channels=C, method="attention")
    with pytest.raises(ValueError, match="this grid has none"):
        selector(make_grid(torch.randn(1, T, H, W, C)))


@pytest.mark.parametrize("side", [3, 5, 6, 13])
def test_rounding_does_not_choose_among_anchors_as_far_from_the_centre(side):
    selector = build_selector(Site("S", 0, (side, side)), channels=C, scorer="taught").eval()
    grid = make_grid(torch.randn(1, 2, side + 1, side + 1, C))
    scores = selector.scoring.score_anchors(grid, side=(side, side), stride=(1, 1))
    assert scores.shape[-1] == 4 and scores.std() < 1e-4


@pytest.mark.parametrize(("hw", "side"), [((4, 4), (3, 3)), ((14, 14), (9, 9)), ((7, 6), (4, 3))])
def test_regions_equally_far_from_the_centre_have_equal_scores(hw, side):
    scores = average_anchors(central_patches(*hw, torch.device("cpu")), side, (1, 1))
    scores = scores.reshape(hw[0] - side[0] + 1, hw[1] - side[1] + 1)
    assert torch.equal(scores, scores.flip(0)) and torch.equal(scores, scores.flip(1))


@pytest.mark.parametrize("side", [(7, 6), (2, 5), (9, 3)])
def test_places_are_averages_of_a_frames_ninths(side):
    maps = torch.randn(2, 4, *side)
    expected = nn.functional.adaptive_avg_pool2d(maps, 3).movedim(1, -1).flatten(1)
    sides = share_side(side[0], maps), share_side(side[1], maps)
    torch.testing.assert_close(average_places(maps.movedim(1, -1), sides), expected)
