import pytest
import torch

from tokenselect.grid import TokenGrid

PATCHES = torch.randn(2, 5, 7, 6, 8)
PREFIX = torch.randn(2, 3, 8)


def test_patches_and_prefix_come_back_as_they_were_joined():
    grid = TokenGrid.from_patches(PATCHES, PREFIX)
    assert grid.thw == (5, 7, 6)
    assert torch.equal(grid.patches, PATCHES)
    assert torch.equal(grid.prefix, PREFIX)


def test_a_token_stands_where_its_place_says():
    grid = TokenGrid.from_patches(PATCHES, PREFIX)
    assert torch.equal(grid.tokens[:, 3 + (2 * 7 + 4) * 6 + 1], PATCHES[:, 2, 4, 1])


def test_patches_are_a_view():
    grid = TokenGrid.from_patches(PATCHES.clone())
    assert grid.patches.data_ptr() == grid.tokens.data_ptr()


def test_other_tokens_forget_the_attention_of_the_old():
    grid = TokenGrid(torch.randn(2, 4, 8), (1, 2, 2), class_attention=torch.rand(2, 1, 2, 2))
    assert grid.with_tokens(grid.tokens[:, :2], (1, 1, 2)).class_attention is None


def test_kept_patches_take_their_positions_along():
    positions = torch.tensor([[3, 5, 7, 9], [0, 1, 2, 4]])
    source = TokenGrid(torch.randn(2, 4, 8), (1, 2, 2), positions=positions)
    kept = torch.tensor([[0, 3], [1, 2]])
    smaller = source.with_tokens(source.tokens[:, :2], (1, 1, 2))
    assert smaller.positions is None
    assert smaller.placed_by(source, kept).positions.tolist() == [[3, 9], [1, 2]]


def test_it_prints_its_shapes():
    assert repr(TokenGrid.from_patches(PATCHES, PREFIX)) == "TokenGrid(b=2, tokens=3 + 5×7×6, c=8)"


@pytest.mark.parametrize(
    ("shape", "thw", "num_prefix", "message"),
    [
        ((2, 3, 8), (1, 2, 2), 0, "makes 4 tokens, got 3"),
        ((2, 4, 8), (1, 2, 2), 1, "makes 5 tokens, got 4"),
        ((4, 8), (1, 2, 2), 0, "must be"),
        ((2, 0, 8), (0, 2, 2), 0, "positive"),
    ],
)
def test_tokens_that_do_not_fill_the_grid_are_refused(shape, thw, num_prefix, message):
    with pytest.raises(ValueError, match=message):
        TokenGrid(torch.zeros(shape), thw, num_prefix)


def frames_with_class_tokens() -> tuple[TokenGrid, torch.Tensor, torch.Tensor]:
    """Build a grid of 3 prefix tokens, then 5 frames of 2 class tokens and 7×6 patches each."""
    own = torch.randn(2, 5, 2, 8)
    frames = torch.cat([own, PATCHES.flatten(2, 3)], dim=2)
    tokens = torch.cat([PREFIX, frames.flatten(1, 2)], dim=1)
    return TokenGrid(tokens, (5, 7, 6), num_prefix=3, num_frame_prefix=2), own, frames


def test_class_tokens_of_frames_stand_before_their_patches():
    grid, own, frames = frames_with_class_tokens()
    assert torch.equal(grid.patches, PATCHES)
    assert torch.equal(grid.frames, frames)
    assert torch.equal(grid.frames[:, :, :2], own)
    assert repr(grid) == "TokenGrid(b=2, tokens=3 + 5×(2 + 7×6), c=8)"


def test_class_tokens_of_frames_go_with_their_frame():
    grid, own, _ = frames_with_class_tokens()
    kept = [[0, 2, 4], [1, 2, 3]]
    patches = [[f * 42 + place for f in frames for place in (5, 9)] for frames in kept]
    smaller = grid.pick(torch.tensor(patches), (3, 1, 2))
    for clip, frames in enumerate(kept):
        assert torch.equal(smaller.prefix[clip], PREFIX[clip])
        assert torch.equal(smaller.frames[clip, :, :2], own[clip, frames])
        assert torch.equal(smaller.patches[clip, :, 0, 0], PATCHES[clip, frames, 0, 5])
        assert torch.equal(smaller.patches[clip, :, 0, 1], PATCHES[clip, frames, 1, 3])


def test_other_patches_leave_the_class_tokens_of_frames():
    grid, own, _ = frames_with_class_tokens()
    smaller = grid.with_patches(PATCHES[:, :, 2:4, :5])
    assert smaller.thw == (5, 2, 5) and torch.equal(smaller.patches, PATCHES[:, :, 2:4, :5])
    assert torch.equal(smaller.frames[:, :, :2], own) and torch.equal(smaller.prefix, PREFIX)


def test_frames_without_room_for_their_class_tokens_are_refused():
    with pytest.raises(ValueError, match="0 prefix tokens and 1 per frame makes 10 tokens, got 8"):
        TokenGrid(torch.zeros(1, 8, 4), (2, 2, 2), num_frame_prefix=1)


def test_a_repeated_clip_keeps_its_positions_and_its_place_in_the_batch():
    positions = torch.tensor([[3, 5, 7, 9], [0, 1, 2, 4]])
    grid = TokenGrid(torch.randn(2, 4, 8), (1, 2, 2), positions=positions).repeated(3)
    assert grid.positions[:, 0].tolist() == [3, 3, 3, 0, 0, 0]
    assert torch.equal(grid.tokens[1], grid.tokens[0]) and grid.class_attention is None
