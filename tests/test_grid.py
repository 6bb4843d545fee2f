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
