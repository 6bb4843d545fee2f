"""Hard selection: whole rows copied out by index, never a one-hot product."""

import torch
from torch import Tensor


def pick_rows(tokens: Tensor, indices: Tensor) -> Tensor:
    """Copy the (b, k) rows `indices` out of each clip of (b, l, c) tokens: (b, k, c)."""
    b, length, c = tokens.shape
    offsets = torch.arange(b, device=indices.device)[:, None] * length
    rows = (indices + offsets).flatten()  # (b·k,) rows of the flattened batch
    return tokens.reshape(b * length, c).index_select(0, rows).view(b, indices.shape[1], c)


def keep_prefix(indices: Tensor, num_prefix: int) -> Tensor:
    """Turn (b, k) indices of patches into (b, p + k) indices of tokens, prefix tokens first."""
    if num_prefix == 0:
        return indices
    prefix = torch.arange(num_prefix, device=indices.device).expand(indices.shape[0], -1)
    return torch.cat([prefix, indices + num_prefix], dim=1)


def frame_patches(frames: Tensor, n: int) -> Tensor:
    """Turn (b, k) frames into the (b, k·n) indices of their patches."""
    return (frames[:, :, None] * n + torch.arange(n, device=frames.device)).flatten(1)


def region_patches(corners: Tensor, hw: tuple[int, int], side: tuple[int, int]) -> Tensor:
    """Turn (b, t, 2) corners of regions, one a frame, into their patches' (b, t·side) indices."""
    h, w = hw
    device = corners.device
    frames = torch.arange(corners.shape[1], device=device)[:, None, None] * (h * w)
    rows = corners[:, :, 0, None, None] + torch.arange(side[0], device=device)[:, None]
    columns = corners[:, :, 1, None, None] + torch.arange(side[1], device=device)
    return (frames + rows * w + columns).flatten(1)
