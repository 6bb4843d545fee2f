"""Static scores, merging and run lengths on grids whose right answer is known."""

import pytest
import torch

from tokenselect.grid import TokenGrid
from tokenselect.plan import Site
from tokenselect.selectors import build_selector

T, H, W, C = 5, 7, 6, 8


def make_grid(patches):
    return TokenGrid.from_patches(patches, torch.randn(patches.shape[0], 1, C))


def build(site, method, **settings):
    return build_selector(site, channels=C, method=method, thw=(T, H, W), **settings)


@pytest.mark.parametrize("site", [Site("T", 0, 2), Site("S", 0, (4, 3))])
def test_static_ignores_the_input(site):
    selector = build(site, "static").eval()
    seen = []
    selector.recorders.append(lambda selection: seen.append(selection))
    for _ in range(2):
        selector(make_grid(torch.randn(3, T, H, W, C)))
    assert torch.equal(seen[0].indices, seen[1].indices)
    assert (seen[0].indices == seen[0].indices[:1]).all()


@pytest.mark.parametrize(
    ("site", "settings"),
    [
        (Site("T", 0, 2), {}),
        (Site("S", 0, (4, 3)), {}),
        (Site("S", 0, (4, 3)), {"tokenwise": True}),
    ],
)
def test_static_learns_which_positions_matter(site, settings):
    torch.manual_seed(0)
    selector = build(site, "static", **settings).train()
    kept = selector(make_grid(torch.randn(3, T, H, W, C)))
    (kept.patches * torch.randn_like(kept.patches)).sum().backward()
    (parameter,) = selector.parameters()
    assert parameter.numel() == (T if site.kind == "T" else H * W)
    assert parameter.grad.abs().max() > 1e-4


def test_static_scores_are_stretched_to_another_grid():
    selector = build(Site("T", 0, 2), "static").eval()
    with torch.no_grad():
        selector.scoring.position_scores.copy_(torch.arange(T))
    grid = make_grid(torch.randn(1, 9, 4, 4, C))
    assert torch.equal(selector(grid).patches, grid.patches[:, 7:])


def test_merged_frames_are_means_of_their_runs():
    a, b, c = torch.randn(3, 1, H, W, C)
    patches = torch.cat([a, a, b, c, c])[None]
    patches[0, 4] *= 1.5
    grid = make_grid(patches)
    merged = build(Site("T", 0, 3), "merge")(grid)
    torch.testing.assert_close(merged.patches[0], torch.cat([a, b, 1.25 * c]))
    assert torch.equal(merged.prefix, grid.prefix)


def test_tokens_of_a_sequence_merge_and_keep_their_mean():
    grid = make_grid(torch.randn(2, T, H, W, C))
    merged = build(Site("S", 0, (4, 3)), "merge", is_sequence=True)(grid)
    assert merged.thw == (T, 4, 3) and torch.equal(merged.prefix, grid.prefix)


def test_run_lengths_keep_the_first_frame_and_what_changed():
    patches = torch.randn(1, 1, H, W, C).repeat(1, T, 1, 1, 1)
    patches[0, 3:] += 1.0
    kept = build(Site("T", 0, 2), "rlt")(make_grid(patches))
    assert torch.equal(kept.patches, patches[:, [0, 3]])


def test_run_lengths_drop_the_tokens_of_a_sequence_that_repeat():
    patches = torch.randn(1, 1, H, W, C).repeat(1, T, 1, 1, 1)
    patches[0, 2:, :3, :6] += 1.0  # 18 patches change once
    side = (3, 4)  # 60 = 42 of the first frame + 18
    kept = build(Site("S", 0, side), "rlt", is_sequence=True)(make_grid(patches))
    expected = torch.cat([patches[0, 0].flatten(0, 1), patches[0, 2, :3].flatten(0, 1)])
    assert kept.thw == (T, *side) and torch.equal(kept.patches[0].flatten(0, 2), expected)


@pytest.mark.parametrize("method", ["merge", "rlt"])
def test_loose_tokens_of_a_grid_are_refused(method):
    with pytest.raises(ValueError, match=f"{method}.*site S4_0.5 of a backbone .*need a grid"):
        build(Site("S", 4, 0.5), method)


def test_static_without_a_known_grid_is_refused():
    with pytest.raises(ValueError, match=r"static.*not known"):
        build_selector(Site("T", 0, 2), channels=C, method="static")
