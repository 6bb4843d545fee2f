"""The threshold of the exact Top-K: where it is sampled, and who is above it."""

import math
from collections.abc import Iterator
from statistics import NormalDist

import torch
from torch import Tensor

_NORMAL = NormalDist()


def threshold_deviation(num_candidates: int, k: int) -> float:
    """Give the standard deviation of the k-th largest of equal candidates under unit noise.

    No scores make the threshold's density narrower than equal ones do, so this is the finest detail
    that the nodes have to resolve.
    """
    share = k / num_candidates
    density = _NORMAL.pdf(_NORMAL.inv_cdf(share))
    return math.sqrt(share * (1 - share) / num_candidates) / density


def threshold_nodes(scores: Tensor, k: int) -> tuple[Tensor, float]:
    """Space the nodes so that the quadrature is exact to the scores' precision.

    The k-th largest of the noisy scores is no further from the k-th score than the largest
    perturbation: 5.5 deviations are left with a chance of 4e-8 a candidate, 7.5 with 6e-14.

    Args:
        scores: (..., l) float32 or float64; only its size and dtype matter.
        k: how many are kept, 1 to l - 1.

    Returns:
        (q,) offsets from the k-th score in units of the noise, and the distance between them.
    """
    reach, fineness = (7.5, 0.7) if scores.dtype == torch.float64 else (5.5, 1.0)
    finest = fineness * threshold_deviation(scores.shape[-1], k)
    num_steps = math.ceil(2 * reach / finest)
    nodes = torch.linspace(-reach, reach, num_steps + 1, dtype=scores.dtype, device=scores.device)
    return nodes, 2 * reach / num_steps


_MAX_ELEMENTS = 2**22  # of a walk at once: 16 MB in float32, whatever the batch and the nodes


def walk_indicator(scores: Tensor, k: int, *, of_taken: bool) -> Tensor:
    """Give the chance of every candidate to be taken, or passed, after c others were taken.

    Args:
        scores: (b, l) float32 or float64, in units of the noise, the k-th largest at 0.
        k: how many are taken, 1 to l - 1; cost and memory grow with it.
        of_taken: count the steps that take a candidate, else those that pass one.

    Returns:
        (b, k, l) for the taken, (b, k + 1, l) for the passed.
    """
    num_rows, num_candidates = scores.shape
    indicator = scores.new_zeros(num_candidates, k if of_taken else k + 1, num_rows)
    for rows, nodes, spacing in _chunks(scores, k, 1):
        _, taken, owner = _step_weights(scores[rows], nodes)
        walk = _walk(taken, owner, k)[:, :, 0]  # (l, 2, 2, k + 1, r, q)
        taken, owner = taken[:, :1], owner[:, :1]
        if of_taken:
            walk = walk[:, :, :, :-1]
            prefix_without, prefix_with = walk[:, 0].unbind(1)
            suffix_without, suffix_with = walk[:, 1].flip(0, 2).unbind(1)
            paths = (taken * suffix_without).mul_(prefix_with)
            paths.addcmul_((taken * suffix_with).addcmul_(owner, suffix_without), prefix_without)
        else:
            paths = (walk[:, 0] * walk[:, 1].flip(0, 1, 2)).sum(dim=1).mul_(1 - taken)
        indicator[:, :, rows] += paths.sum(dim=-1).mul_(spacing)
    return indicator.permute(2, 1, 0).contiguous()


def walk_gradient(grad: Tensor, scores: Tensor, k: int, *, of_taken: bool) -> Tensor:
    """Apply the transposed Jacobian of `walk_indicator` to `grad`; returns (b, l)."""
    result = torch.zeros_like(scores, memory_format=torch.contiguous_format)
    rewards = grad.permute(2, 1, 0).unsqueeze(-1)  # (l, k, b, 1)
    for rows, nodes, spacing in _chunks(scores, k, 2):
        above, taken, owner = _step_weights(scores[rows], nodes)
        reward = rewards[:, :, rows]
        walk = _walk(taken, owner, k, reward)
        taken_less_passed, owned = _rewards_by_step(walk, reward, of_taken=of_taken)
        change = taken_less_passed.addcmul_(above, owned, value=-1).mul_(owner[:, 0])
        result[rows] += change.sum(dim=-1).mul_(spacing).T
    return result


def _chunks(scores: Tensor, k: int, num_carried: int) -> Iterator[tuple[slice, Tensor, float]]:
    """Split rows, and nodes when one row is too much, so that a walk stays within its budget."""
    nodes, spacing = threshold_nodes(scores, k)
    column = 4 * num_carried * scores.shape[-1] * (k + 2)
    num_columns = max(1, _MAX_ELEMENTS // column)
    num_nodes = min(nodes.numel(), num_columns)
    num_rows = max(1, num_columns // num_nodes)
    for start in range(0, len(scores), num_rows):
        for part in nodes.split(num_nodes):
            yield slice(start, start + num_rows), part, spacing


def _step_weights(scores: Tensor, nodes: Tensor) -> tuple[Tensor, Tensor, Tensor]:
    """Give a (l, r, q) of scores (r, l), and Φ(a) and φ(a) in both orders, each (l, 2, r, q).

    Weights below the rounding of 1 are set to 0, here as in the walk: products of them would fall
    into denormal numbers, which take twice the time.
    """
    tiny = 0.1 * torch.finfo(scores.dtype).eps
    above = scores.T.unsqueeze(-1) - nodes
    taken = torch.erfc(above * -math.sqrt(0.5)).mul_(0.5)
    owner = (above * above).mul_(-0.5).exp_().mul_(1 / math.sqrt(2 * math.pi))
    taken, owner = torch.threshold_(taken, tiny, 0.0), torch.threshold_(owner, tiny, 0.0)
    return above, _both_ways(taken), _both_ways(owner)


def _both_ways(steps: Tensor, *mirrored: int) -> Tensor:
    """Stack the candidates in order and in reverse: (l, ...) to (l, 2, ...)."""
    return torch.stack((steps, steps.flip(0, *mirrored)), dim=1)


def _walk(taken: Tensor, owner: Tensor, k: int, reward: Tensor | None = None) -> Tensor:
    """Carry all paths over the candidates, from both ends at once.

    A path earns `reward`, (l, k, r, 1) by taking or (l, k + 1, r, 1) by passing a candidate after c
    others were taken. `taken` and `owner`, both (l, 2, r, q), are the chance of being taken and the
    density of owning the threshold.

    Returns:
        (l, 2, carried, 2, k + 1, r, q) states before each step; carried is weight, then reward.
    """
    num_carried = 1 if reward is None else 2
    walk = taken.new_zeros(len(taken), 2, num_carried, 2, k + 2, *taken.shape[2:])
    walk[0, :, 0, 0, 1] = 1
    now, after = walk[:-1], walk[1:]
    states = walk[:, :, :, :, 1:]
    shifted = now[:, :, :, :, :-1]
    steps, chances = states.unbind(), taken[:-1, :, None, None, None].unbind()
    moves = zip(steps[:-1], shifted.unbind(), chances, steps[1:], strict=True)
    gains = [_by_step(shifted[:, :, :, 0], owner[:, :, None, None], after[:, :, :, 1, 1:])]
    if reward is not None:
        gains += _earnings(now, after, taken, owner, reward)
    for index, ((stay, move, chance, result), *added) in enumerate(zip(moves, *gains, strict=True)):
        torch.lerp(stay, move, chance, out=result)
        for state, factor, total in added:
            total.addcmul_(state, factor)
        if k > 4 and index % 2:  # fewer factors cannot get there
            torch.hardshrink(result, torch.finfo(walk.dtype).tiny ** 0.45, out=result)
    return states


def _earnings(
    now: Tensor, after: Tensor, taken: Tensor, owner: Tensor, reward: Tensor
) -> list[Iterator[tuple[Tensor, ...]]]:
    """List what is to be added to the rewards carried in `after`; see `_walk`."""
    weight, earned = now[:, :, 0, :, 1:], after[:, :, 1, :, 1:]
    reward = _both_ways(reward, 1)  # (l, 2, k or k + 1, r, 1)
    is_for_passing = reward.shape[2] == weight.shape[3]
    if is_for_passing:
        return [_by_step(weight, (reward * (1 - taken).unsqueeze(2)).unsqueeze(2), earned)]
    weight, earned = weight[:, :, :, :-1], earned[:, :, :, 1:]
    return [
        _by_step(weight, (reward * taken.unsqueeze(2)).unsqueeze(2), earned),
        _by_step(weight[:, :, 0], reward * owner.unsqueeze(2), earned[:, :, 1]),
    ]


def _by_step(*tensors: Tensor) -> Iterator[tuple[Tensor, ...]]:
    """Cut tensors along the candidates; the last one, one step shorter, ends the walk."""
    return zip(*(tensor.unbind() for tensor in tensors), strict=False)


def _rewards_by_step(walk: Tensor, reward: Tensor, *, of_taken: bool) -> tuple[Tensor, Tensor]:
    """Sum the rewards of all paths through a candidate, its own step's weight taken as 1.

    Returns:
        (l, r, q) if taken less if passed, and (l, r, q) if the owner.
    """
    prefix, prefix_reward = walk[:, 0].unbind(1)
    suffix, suffix_reward = walk[:, 1].flip(0, 2, 3).unbind(1)  # by the state that it starts from
    earned = prefix_reward if of_taken else torch.addcmul(prefix_reward, prefix, reward[:, None])
    passed = (earned * suffix).addcmul_(prefix, suffix_reward)
    prefix, earned = prefix[:, :, :-1], prefix_reward[:, :, :-1]
    suffix, suffix_reward = suffix[:, :, 1:], suffix_reward[:, :, 1:]  # one more is taken
    if of_taken:
        earned = torch.addcmul(earned, prefix, reward[:, None])
    taken = (earned * suffix).addcmul_(prefix, suffix_reward)
    owned = (earned[:, 0] * suffix[:, 1]).addcmul_(prefix[:, 0], suffix_reward[:, 1])
    return taken.sum(dim=(1, 2)).sub_(passed.sum(dim=(1, 2))), owned.sum(dim=1)
