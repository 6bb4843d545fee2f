"""Window attention against the definition, one pair of tokens at a time."""

import math
from itertools import product

import pytest
import torch
from torch import Tensor

from tokenselect.backbones.video_swin.block import WindowAttention


def place_on_axis(i: int, side: int, largest: int, is_shifted: bool) -> tuple[int, bool]:
    """Name the window of token i; ends of a rolled axis are apart although in one window."""
    count = math.ceil(side / largest)
    short, longer = divmod(side, count)
    shift = math.ceil(side / count) // 2 if is_shifted and count > 1 else 0
    ends = [n * short + min(n, longer) for n in range(1, count + 1)]
    rolled = (i - shift) % side
    return next(n for n, end in enumerate(ends) if rolled < end), i < shift


def attend_by_pairs(attention: WindowAttention, patches: Tensor) -> Tensor:
    b, t, h, w, c = patches.shape
    d = c // attention.num_heads
    window = attention.window
    table = attention.bias_table.unflatten(0, [2 * side - 1 for side in window])
    cells = list(product(range(t), range(h), range(w)))
    places = [
        [
            place_on_axis(i, side, largest, attention.is_shifted)
            for i, side, largest in zip(cell, (t, h, w), window, strict=True)
        ]
        for cell in cells
    ]
    q, k, v = attention.qkv(patches).reshape(b, t * h * w, 3, -1, d).unbind(2)  # (b, n, heads, d)
    mixed = torch.empty_like(q)
    for i, cell in enumerate(cells):
        seen = [j for j, place in enumerate(places) if place == places[i]]
        offsets = [
            [x - y + side - 1 for x, y, side in zip(cell, cells[j], window, strict=True)]
            for j in seen
        ]
        bias = torch.stack([table[x, y, z] for x, y, z in offsets])  # (k, heads)
        scores = (q[:, i, None] * k[:, seen]).sum(-1) / d**0.5 + bias
        mixed[:, i] = (scores.softmax(1)[..., None] * v[:, seen]).sum(1)
    return attention.project(mixed.reshape(b, t, h, w, c))


@pytest.mark.parametrize("is_shifted", [False, True])
@pytest.mark.parametrize(
    ("thw", "window"),
    [
        ((4, 6, 9), (2, 3, 3)),  # windows divide the grid
        ((5, 7, 6), (4, 3, 4)),  # they do not
        ((3, 5, 4), (4, 7, 7)),  # the grid is smaller than one window
        ((3, 9, 2), (8, 7, 7)),
        ((5, 1, 8), (4, 3, 3)),
    ],
)
def test_attention_is_that_among_the_tokens_of_a_window(thw, window, is_shifted):
    torch.manual_seed(0)
    attention = WindowAttention(6, 2, window=window, is_shifted=is_shifted)
    torch.nn.init.normal_(attention.bias_table)
    patches = torch.randn(2, *thw, 6)
    with torch.no_grad():
        expected = attend_by_pairs(attention, patches)
        torch.testing.assert_close(attention(patches), expected, atol=1e-5, rtol=1e-5)


def test_padded_windows_differ_from_fitted_ones_only_where_windows_do_not_divide_the_grid():
    torch.manual_seed(0)
    padded = WindowAttention(6, 2, window=(4, 3, 3), is_shifted=True, fit_windows=False)
    fitted = WindowAttention(6, 2, window=(4, 3, 3), is_shifted=True)
    fitted.load_state_dict(padded.state_dict())
    whole, odd = torch.randn(2, 8, 6, 3, 6), torch.randn(2, 5, 6, 3, 6)
    torch.testing.assert_close(padded(whole), fitted(whole))
    assert padded(odd).shape == odd.shape
    assert not torch.allclose(padded(odd), fitted(odd), atol=1e-3)


def test_heads_must_divide_the_channels():
    with pytest.raises(ValueError, match="num_heads must divide 6 channels, got 4"):
        WindowAttention(6, 4, window=(2, 2, 2), is_shifted=False)
