"""Boxes of pixels with known answers, worked out by hand, and against the selectors themselves."""

import pytest
import torch

from tokenselect.grid import TokenGrid
from tokenselect.plan import SelectionPlan, Site
from tokenselect.selectors import Selection, build_selector
from tokenselect.visualization.tracing import Trace, to_pixels, trace_sites

STAY = (1, 1, 1)
HALVE = (1, 2, 2)
STRIDE = (2, 4, 4)


def keep_frames(block, frames, thw):
    site = Site("T", block, count=len(frames))
    scores = torch.zeros(1, thw[0])
    return Selection(site, scores, torch.tensor([frames]), thw, (len(frames), *thw[1:]))


def keep_regions(block, corners, side, thw):
    site = Site("S", block, side)
    indices = torch.zeros(1, thw[0], dtype=torch.int64)
    scores = torch.zeros(1, thw[0], 1)
    return Selection(site, scores, indices, thw, (thw[0], *side), torch.tensor([corners]))


def keep_patches(block, patches, side, thw):
    site = Site("S", block, side)
    scores = torch.zeros(1, thw[0], thw[1] * thw[2])
    return Selection(site, scores, torch.tensor([patches]), thw, (thw[0], *side))


def by_label(*selections):
    return {selection.site.label: selection for selection in selections}


def pixels_after(selections, *, label, video, strides):
    thw = tuple(-(-side // step) for side, step in zip(video, STRIDE, strict=True))
    traces = trace_sites(selections, thw=thw, strides=strides)
    return to_pixels(traces[label][1].is_kept, stride=STRIDE, video=video)


def test_kept_frames_are_the_frames_of_their_patches():
    kept = pixels_after(
        by_label(keep_frames(0, [0, 2], (3, 2, 3))),
        label="T0",
        video=(5, 8, 12),  # the last token frame stands for one frame only
        strides=[STAY],
    )
    assert kept.frames.tolist() == [True, True, False, False, True]
    assert kept.boxes[0].tolist() == [0, 0, 12, 8]
    assert kept.boxes[2].tolist() == [0, 0, 0, 0]


def test_frames_of_frames_compose():
    first = keep_frames(0, [0, 2, 3], (4, 2, 3))
    second = keep_frames(1, [0, 2], (3, 2, 3))
    kept = pixels_after(by_label(first, second), label="T1", video=(8, 8, 12), strides=[STAY, STAY])
    assert kept.frames.nonzero().flatten().tolist() == [0, 1, 6, 7]


def test_a_region_of_a_pooled_region_is_traced_to_pixels():
    # Rows 1 to 7 and columns 2 to 12 stay, then pair up: {1,2} {3,4} {5,6} {7}, {2,3} … {12}.
    # Of these groups rows 2, 3 and columns 3, 4, 5 stay: cells 5 to 7 and 8 to 12.
    first = keep_regions(0, [[1, 2]], (7, 11), (1, 9, 13))
    second = keep_regions(2, [[2, 3]], (2, 3), (1, 4, 6))
    kept = pixels_after(
        by_label(first, second), label="S2", video=(2, 36, 52), strides=[STAY, HALVE, STAY]
    )
    assert kept.boxes.tolist() == [[32, 20, 52, 32]] * 2
    assert kept.are_full.all()


def test_cells_are_clipped_at_the_border_of_the_picture():
    last = keep_regions(0, [[1, 2]], (1, 1), (1, 2, 3))
    kept = pixels_after(by_label(last), label="S0", video=(1, 7, 9), strides=[STAY])
    assert kept.boxes.tolist() == [[8, 4, 9, 7]]


def test_two_poolings_round_up_one_after_the_other():
    # 7 rows → 4 → 2: the last stands for groups 2, 3 of {0,1} {2,3} {4,5} {6}: cells 4 to 6.
    site = keep_regions(2, [[1, 0]], (1, 1), (1, 2, 1))
    kept = pixels_after(by_label(site), label="S2", video=(2, 28, 12), strides=[HALVE, HALVE, STAY])
    assert kept.boxes.tolist() == [[0, 16, 12, 28]] * 2


def test_every_frame_has_its_own_region():
    frames = keep_frames(0, [1, 2], (3, 4, 5))
    regions = keep_regions(0, [[0, 1], [2, 3]], (2, 2), (2, 4, 5))
    kept = pixels_after(by_label(frames, regions), label="S0", video=(6, 16, 20), strides=[STAY])
    assert kept.boxes.tolist() == [[0] * 4] * 2 + [[4, 0, 12, 8]] * 2 + [[12, 8, 20, 16]] * 2


def test_time_that_is_pooled_joins_frames_with_their_own_regions():
    regions = keep_regions(0, [[0, 0], [1, 2]], (1, 1), (2, 2, 3))
    last = keep_frames(1, [0], (1, 1, 1))
    kept = pixels_after(
        by_label(regions, last), label="T1", video=(4, 8, 12), strides=[(2, 1, 1), STAY]
    )
    assert kept.boxes.tolist() == [[0, 0, 4, 4]] * 2 + [[8, 4, 12, 8]] * 2


def test_patches_one_by_one_leave_no_full_box():
    site = keep_patches(0, [[0, 2, 3, 5]], (2, 2), (1, 2, 3))
    kept = pixels_after(by_label(site), label="S0", video=(2, 8, 12), strides=[STAY])
    assert kept.boxes[0].tolist() == [0, 0, 12, 8]
    assert not kept.are_full.all() and kept.share == pytest.approx(4 / 6)
    assert kept.mask[0, 0].tolist() == [True] * 4 + [False] * 4 + [True] * 4


def test_strides_of_another_model_are_refused():
    site = keep_frames(1, [0], (2, 4, 4))
    with pytest.raises(ValueError, match=r"T1=1 .* the strides are not those of the model"):
        trace_sites(by_label(site), thw=(2, 4, 4), strides=[HALVE, STAY])


def test_values_of_tokens_are_spread_over_the_cells_they_stand_for():
    trace = Trace.start((1, 3, 2)).pool((1, 2, 2))
    assert trace.spread(torch.tensor([5.0, 7.0])).tolist() == [[[5, 5], [5, 5], [7, 7]]]


@pytest.mark.parametrize("tokenwise", [False, True])
@pytest.mark.parametrize("size", [(9, 13), (12, 7)])
def test_tracing_agrees_with_tokens_that_carry_their_place(tokenwise, size):
    """Tokens that hold their own cell's number go through real selectors and a real pooling."""
    torch.manual_seed(0)
    thw = (7, *size)
    strides = [STAY, HALVE, STAY, HALVE, STAY]
    plan = SelectionPlan.parse("T0_0.9-S0_0.8-T2_0.7-S2_0.7-T4_0.6-S4_0.5")
    cells = torch.arange(thw[0] * thw[1] * thw[2]).view(1, *thw, 1).float()
    grid = TokenGrid.from_patches(cells.expand(2, *thw, 1))
    selections: dict[str, Selection] = {}
    for block, stride in enumerate(strides):
        for site in plan.before(block):
            selector = build_selector(site, channels=1, method="random", tokenwise=tokenwise)
            selector.recorders.append(lambda made: selections.update({made.site.label: made}))
            grid = selector.eval()(grid)
        grid = grid.with_patches(grid.patches[:, :: stride[0], :: stride[1], :: stride[2]])
    for clip in (0, 1):
        _, after = trace_sites(selections, thw=thw, strides=strides, clip=clip)["S4"]
        carried = grid.tokens[clip].flatten().int().tolist()
        owners = after.owner.flatten()[carried].tolist()
        assert owners == list(range(len(carried)))
        if not tokenwise:  # else patches are laid out anew, and the first need not come first
            first = [int((after.owner.flatten() == n).nonzero()[0]) for n in owners]
            assert first == carried
