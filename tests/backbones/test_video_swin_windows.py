import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st

from tokenselect.backbones.video_swin.block import pad_to_windows
from tokenselect.backbones.video_swin.windows import Cut, cut_axis, lay_windows


def windows_of(cuts: list[Cut]) -> list[tuple[int, int, int]]:
    """List start, size and seam of every window, in order of their places."""
    return sorted((start, cut.size, cut.seam) for cut in cuts for start in cut.starts)


@pytest.mark.parametrize(
    ("side", "largest", "sizes"),
    [
        (16, 8, [8, 8]),
        (10, 8, [5, 5]),
        (13, 8, [7, 6]),
        (5, 8, [5]),
        (8, 8, [8]),
        (9, 7, [5, 4]),
        (37, 7, [7, 6, 6, 6, 6, 6]),
    ],
)
def test_windows_share_a_side_evenly(side, largest, sizes):
    windows = windows_of(cut_axis(side, largest, is_shifted=False))
    assert [size for _, size, _ in windows] == sizes


@pytest.mark.parametrize("side", [1, 5, 7])
def test_a_side_within_one_window_is_never_shifted(side):
    assert cut_axis(side, 7, is_shifted=True) == [Cut(side, 0, (0,))]


def test_the_last_window_of_a_shifted_axis_has_the_seam():
    windows = windows_of(cut_axis(21, 7, is_shifted=True))
    assert windows == [(3, 7, 0), (10, 7, 0), (17, 7, 4)]


def test_a_window_that_only_holds_the_axis_start_has_no_seam():
    assert windows_of(cut_axis(3, 2, is_shifted=True)) == [(1, 2, 0), (3, 1, 0)]


@given(st.integers(1, 80), st.integers(1, 16), st.booleans())
def test_windows_cover_an_axis_once(side, largest, is_shifted):
    cuts = cut_axis(side, largest, is_shifted=is_shifted)
    covered = [(start + i) % side for cut in cuts for start in cut.starts for i in range(cut.size)]
    assert sorted(covered) == list(range(side))
    assert all(cut.size <= largest for cut in cuts)


@given(st.integers(1, 80), st.integers(1, 16))
def test_a_window_has_a_seam_where_it_passes_the_end_of_the_axis(side, largest):
    for start, size, seam in windows_of(cut_axis(side, largest, is_shifted=True)):
        assert seam == (side - start if start < side < start + size else 0)


@pytest.mark.parametrize("is_shifted", [False, True])
@pytest.mark.parametrize("thw", [(4, 6, 6), (5, 7, 4)])
def test_every_token_has_one_place_in_the_order_of_windows(thw, is_shifted):
    layout = lay_windows(thw, (2, 3, 3), is_shifted=is_shifted)
    order = layout.token_order(2, torch.device("cpu"))
    assert sorted(order.tolist()) == list(range(2 * thw[0] * thw[1] * thw[2]))
    assert sum(shape.count * shape.tokens for shape in layout.shapes(2)) == len(order)


def test_tokens_of_a_window_follow_each_other():
    order = lay_windows((2, 2, 4), (2, 2, 2), is_shifted=False).token_order(1, torch.device("cpu"))
    assert order.tolist() == [0, 1, 4, 5, 8, 9, 12, 13, 2, 3, 6, 7, 10, 11, 14, 15]


def test_a_shifted_grid_that_the_window_divides_has_eight_shapes():
    layout = lay_windows((16, 56, 56), (8, 7, 7), is_shifted=True)
    assert [shape.count for shape in layout.shapes(3)] == [147, 21, 21, 3] * 2


def test_sides_are_padded_only_where_there_are_several_windows():
    padded = pad_to_windows(torch.ones(2, 10, 14, 5, 3), (8, 7, 7))
    assert padded.shape == (2, 16, 14, 5, 3) and not padded[:, 10:].any()
