import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st

from tokenselect.ops.anchors import (
    anchor_corners,
    average_anchors,
    blend_anchors,
    corners_of,
    count_anchors,
    default_stride,
)

MAPS = torch.randn(2, 5, 7, 6)
SIDE, STRIDE = (3, 4), (2, 1)


def test_the_paper_counts_its_anchors():
    assert count_anchors((14, 14), (10, 10), (2, 2)) == (3, 3)  # G = ((14 − 10) / 2 + 1)²


def test_a_stride_in_parts_is_never_zero_and_gives_few_anchors():
    assert default_stride((20, 9), (8, 7), 3) == (2, 1)
    for free in range(1, 60):
        hw, side = (free + 3, free + 3), (3, 3)
        assert max(count_anchors(hw, side, default_stride(hw, side, 3))) <= 8


@pytest.mark.parametrize(("length", "side", "stride"), [(14, 13, 1), (14, 8, 3), (56, 43, 6)])
def test_the_default_stride_is_half_the_free_room(length, side, stride):
    assert default_stride((length, length), (side, side)) == (stride, stride)


def test_averages_are_those_of_the_crops():
    averages = average_anchors(MAPS, SIDE, STRIDE)
    crops = [
        MAPS[..., r : r + 3, c : c + 4].mean(dim=(-2, -1))
        for r, c in anchor_corners((7, 6), SIDE, STRIDE)
    ]
    torch.testing.assert_close(averages, torch.stack(crops, dim=-1))


@given(
    st.tuples(st.integers(1, 9), st.integers(1, 9)),
    st.tuples(st.integers(1, 9), st.integers(1, 9)),
    st.tuples(st.integers(1, 4), st.integers(1, 4)),
)
def test_corners_by_index_are_those_of_the_list(hw, room, stride):
    side = (min(hw[0], room[0]), min(hw[1], room[1]))
    corners = anchor_corners(hw, side, stride)
    assert corners_of(torch.arange(len(corners)), hw, side, stride).tolist() == [
        list(corner) for corner in corners
    ]
    assert all(r + side[0] <= hw[0] and c + side[1] <= hw[1] for r, c in corners)


def test_a_one_hot_weight_cuts_its_anchor_out():
    patches = torch.randn(2, 5, 7, 6, 8)
    corners = anchor_corners((7, 6), SIDE, STRIDE)
    weights = torch.zeros(2, 5, len(corners))
    weights[..., 4] = 1
    row, column = corners[4]
    crop = patches[:, :, row : row + 3, column : column + 4]
    assert torch.equal(blend_anchors(patches, weights, SIDE, STRIDE), crop)


def test_an_anchor_larger_than_the_map_is_refused():
    with pytest.raises(ValueError, match="8×3 does not fit in 7×6"):
        average_anchors(MAPS, (8, 3), (1, 1))
