"""What a pooling reads: with a stride above its kernel, only some rows and columns of the grid.

Keys and values of the other places are never looked at. (Of the first block of MViT-B16, which
pools by 8 with a kernel of 3, that is 55 of 64.)
"""

import torch
from torch import Tensor

from tokenselect.backbones.mvit.convolution import THW


def keep_read(tokens: Tensor, *, thw: THW, kernel: THW, stride: THW) -> tuple[Tensor, THW, THW]:
    """Drop the patches that no window of a pooling covers.

    Args:
        tokens: (b, p + t·h·w, c).
        thw: grid of the patches.
        kernel: sides of the pooling's windows, odd.
        stride: steps between them.

    Returns:
        The remaining tokens, their grid, and the stride that pools them to the same result.
    """
    axes = [
        [place for place in range(side) if (place + reach // 2) % step < reach]
        for side, reach, step in zip(thw, kernel, stride, strict=True)
    ]
    t, h, w = map(len, axes)
    if (t, h, w) == thw:
        return tokens, thw, stride
    frames, rows, columns = (torch.tensor(axis, device=tokens.device) for axis in axes)
    places = (frames[:, None, None] * thw[1] + rows[:, None]) * thw[2] + columns  # (t, h, w)
    num_prefix = tokens.shape[1] - thw[0] * thw[1] * thw[2]
    prefix = torch.arange(num_prefix, device=tokens.device)
    kept = tokens.index_select(1, torch.cat([prefix, num_prefix + places.flatten()]))
    st, sh, sw = map(min, stride, kernel)
    return kept, (t, h, w), (st, sh, sw)
