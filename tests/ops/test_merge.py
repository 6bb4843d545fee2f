import pytest
import torch

from tokenselect.ops.merge import group_frames, merge_tokens


@pytest.mark.parametrize("keep", [1, 3, 6, 10, 11])
def test_merging_keeps_the_mean(keep):
    torch.manual_seed(0)
    tokens = torch.randn(2, 11, 5)
    merged, sizes, places = merge_tokens(tokens, keep)
    assert merged.shape == (2, keep, 5) and torch.equal(sizes.sum(1), torch.full((2,), 11.0))
    torch.testing.assert_close((merged * sizes[..., None]).sum(1), tokens.sum(1))
    assert (places.diff(dim=1) > 0).all()


def test_alike_tokens_merge_and_others_stay():
    tokens = torch.eye(6)[None] * 3
    tokens[0, 3] = 5 * tokens[0, 0]  # an odd one that points where token 0 does
    merged, sizes, places = merge_tokens(tokens, 5)
    assert places.tolist() == [[0, 1, 2, 4, 5]] and sizes.tolist() == [[2, 1, 1, 1, 1]]
    torch.testing.assert_close(merged[0, 0], (tokens[0, 0] + tokens[0, 3]) / 2)
    torch.testing.assert_close(merged[0, 1:], tokens[0, [1, 2, 4, 5]])


def test_frames_join_their_neighbours_only():
    a, b, c = torch.eye(3)
    frames = torch.stack([a, a, b, c, c, c, a])[None]
    shares = group_frames(frames, 4)
    assert shares[0].gt(0).int().tolist() == [
        [1, 1, 0, 0, 0, 0, 0],
        [0, 0, 1, 0, 0, 0, 0],
        [0, 0, 0, 1, 1, 1, 0],
        [0, 0, 0, 0, 0, 0, 1],
    ]
    torch.testing.assert_close(shares.sum(2), torch.ones(1, 4))


def test_every_clip_groups_its_own_frames():
    torch.manual_seed(0)
    frames = torch.randn(3, 7, 4)
    together = group_frames(frames, 3)
    assert torch.equal(together[1:2], group_frames(frames[1:2], 3))


def test_too_many_are_refused():
    with pytest.raises(ValueError, match=r"keep must be in 1\.\.4 .*got 5"):
        merge_tokens(torch.randn(1, 4, 2), 5)
    with pytest.raises(ValueError, match=r"keep must be in 1\.\.4 .*got 0"):
        group_frames(torch.randn(1, 4, 2), 0)
