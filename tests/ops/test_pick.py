import torch

from tokenselect.ops.pick import frame_patches, keep_prefix, pick_rows, region_patches


def test_rows_are_picked_clip_by_clip():
    tokens = torch.randn(2, 7, 3)
    indices = torch.tensor([[0, 6, 2], [5, 1, 1]])
    expected = torch.stack([tokens[0, [0, 6, 2]], tokens[1, [5, 1, 1]]])
    assert torch.equal(pick_rows(tokens, indices), expected)


def test_rows_of_a_strided_view_are_picked_too():
    tokens = torch.randn(2, 8, 3)[:, 1:]
    assert torch.equal(pick_rows(tokens, torch.tensor([[2], [4]]))[1, 0], tokens[1, 4])


def test_prefix_tokens_come_first():
    assert keep_prefix(torch.tensor([[3, 4], [0, 9]]), 2).tolist() == [[0, 1, 5, 6], [0, 1, 2, 11]]


def test_frames_bring_all_their_patches():
    assert frame_patches(torch.tensor([[1, 3]]), 2).tolist() == [[2, 3, 6, 7]]


def test_regions_bring_their_rows_and_columns():
    h, w, side = 4, 5, (2, 3)
    clip = torch.arange(2 * h * w).reshape(2, h, w)
    corners = torch.tensor([[[1, 2], [2, 0]]])
    indices = region_patches(corners, (h, w), side)
    expected = torch.cat([clip[0, 1:3, 2:5].flatten(), clip[1, 2:4, 0:3].flatten()])
    assert indices[0].tolist() == expected.tolist()
