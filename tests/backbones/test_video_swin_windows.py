import pytest
from hypothesis import given
from hypothesis import strategies as st

from tokenselect.backbones.video_swin.windows import Axis, Run, cut_axis, lay_windows


def sizes(side: int, largest: int, **how: bool) -> list[int]:
    axis = cut_axis(side, largest, **({"is_shifted": False, "fit": True} | how))
    return [run.size for run in axis.runs for _ in range(run.count)]


@pytest.mark.parametrize(
    ("side", "largest", "expected"),
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
def test_fitted_windows_share_a_side_evenly(side, largest, expected):
    assert sizes(side, largest) == expected


def test_windows_that_are_not_fitted_pad_the_side():
    assert sizes(10, 8, fit=False) == [8, 8]
    assert cut_axis(10, 8, is_shifted=False, fit=False).side == 16


def test_a_side_within_one_window_is_never_shifted_or_padded():
    for fit in (True, False):
        assert cut_axis(5, 7, is_shifted=True, fit=fit) == Axis(5, 0, (Run(0, 5, 1),))


def test_the_last_window_of_a_shifted_axis_has_the_seam():
    axis = cut_axis(14, 7, is_shifted=True, fit=True)
    assert axis.shift == 3
    assert axis.runs == (Run(0, 7, 1), Run(7, 7, 1, seam=4))


@given(
    st.integers(1, 80), st.integers(1, 16), st.booleans(), st.booleans()
)  # every side a selector could leave
def test_runs_cover_an_axis_once_and_in_order(side, largest, is_shifted, fit):
    axis = cut_axis(side, largest, is_shifted=is_shifted, fit=fit)
    covered = [place for run in axis.runs for place in range(axis.side)[run.span]]
    assert covered == list(range(axis.side))
    assert axis.side >= side
    assert all(run.size <= largest for run in axis.runs)


@given(st.integers(1, 80), st.integers(1, 16))
def test_the_seam_stands_where_the_axis_ends_meet(side, largest):
    axis = cut_axis(side, largest, is_shifted=True, fit=True)
    last = axis.runs[-1]
    if axis.shift:
        assert last.count == 1
        assert last.size - last.seam == axis.shift
    else:
        assert last.seam == 0


def test_a_shifted_grid_that_the_window_divides_has_eight_groups():
    layout = lay_windows((16, 56, 56), (8, 7, 7), is_shifted=True, fit=True)
    assert len(layout.groups) == 8
    assert layout.shift == (4, 3, 3)
