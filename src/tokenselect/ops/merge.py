"""Merging alike tokens instead of dropping them: bipartite soft matching, and runs of frames."""

import torch
import torch.nn.functional as F
from torch import Tensor


def merge_tokens(tokens: Tensor, keep: int) -> tuple[Tensor, Tensor, Tensor]:
    """Merge the most alike tokens until `keep` are left (bipartite soft matching, as in ToMe).

    Every other token may join the one among the rest whose direction is nearest to its own; the
    nearest pairs do, and take their mean. At most half of the tokens go in a round, so there may be
    several.

    Args:
        tokens: (b, n, c).
        keep: how many stay, 1 to n.

    Returns:
        (b, keep, c) tokens, each the mean of those that joined it; (b, keep) how many those are;
        (b, keep) the place of the one that the others joined, in rising order.
    """
    b, n, _ = tokens.shape
    if not 1 <= keep <= n:
        raise ValueError(f"keep must be in 1..{n} (the number of tokens), got {keep}")
    sizes = tokens.new_ones(b, n)
    places = torch.arange(n, device=tokens.device).expand(b, n)
    while tokens.shape[1] > keep:
        tokens, sizes, places = _merge_round(tokens, sizes, places, keep)
    return tokens, sizes, places


def _merge_round(
    tokens: Tensor, sizes: Tensor, places: Tensor, keep: int
) -> tuple[Tensor, Tensor, Tensor]:
    """Let at most half of the tokens join others."""
    n = tokens.shape[1]
    leaving = min(n - keep, n // 2)
    directions = F.normalize(tokens, dim=-1)
    likeness = directions[:, 1::2] @ directions[:, ::2].transpose(1, 2)  # (b, odd, even)
    best, goal = likeness.max(dim=-1)  # (b, odd)
    order = best.argsort(dim=-1, descending=True)
    gone, stay = order[:, :leaving], order[:, leaving:]
    goal = goal.gather(1, gone)  # (b, leaving) among the even
    weighted = tokens * sizes[..., None]
    sums = weighted[:, ::2].scatter_add(1, _wide(goal, tokens), _rows(weighted[:, 1::2], gone))
    counts = sizes[:, ::2].scatter_add(1, goal, sizes[:, 1::2].gather(1, gone))
    sums = torch.cat([sums, _rows(weighted[:, 1::2], stay)], dim=1)
    counts = torch.cat([counts, sizes[:, 1::2].gather(1, stay)], dim=1)
    where = torch.cat([places[:, ::2], places[:, 1::2].gather(1, stay)], dim=1)
    rank = where.argsort(dim=1)
    counts = counts.gather(1, rank)
    return _rows(sums, rank) / counts[..., None], counts, where.gather(1, rank)


def group_frames(frames: Tensor, keep: int) -> Tensor:
    """Join the most alike neighbours of (b, t, d) frames until `keep` runs, 1 to t, are left.

    Returns:
        (b, keep, t) share of each frame in the mean of its run; rows sum to 1.
    """
    b, t, _ = frames.shape
    if not 1 <= keep <= t:
        raise ValueError(f"keep must be in 1..{t} (the number of frames), got {keep}")
    products = torch.matmul(frames, frames.transpose(1, 2)).float()  # (b, t, t)
    run = torch.arange(t, device=frames.device).expand(b, t)  # which run a frame belongs to
    for left in range(t, keep, -1):
        shares = _shares(run, left, products.dtype)
        likeness = shares @ products @ shares.transpose(1, 2)  # of the runs' means
        length = likeness.diagonal(dim1=1, dim2=2).clamp_min(1e-12).sqrt()
        beside = likeness.diagonal(offset=1, dim1=1, dim2=2) / (length[:, 1:] * length[:, :-1])
        joined = beside.argmax(dim=1, keepdim=True)  # (b, 1): this run and the next become one
        run = run - (run > joined).long()
    return _shares(run, keep, frames.dtype)


def _shares(run: Tensor, count: int, dtype: torch.dtype) -> Tensor:
    """Turn (b, t) runs into (b, count, t) shares of the frames in them."""
    member = F.one_hot(run, count).transpose(1, 2).to(dtype)
    return member / member.sum(dim=2, keepdim=True)


def _rows(tokens: Tensor, indices: Tensor) -> Tensor:
    return tokens.gather(1, _wide(indices, tokens))


def _wide(indices: Tensor, tokens: Tensor) -> Tensor:
    return indices[..., None].expand(-1, -1, tokens.shape[2])
