"""Scoring: how much each frame, region or patch of a grid matters. Methods differ only in this."""

import torch
from torch import Tensor, nn

from tokenselect.grid import TokenGrid
from tokenselect.ops.anchors import Pair, average_anchors
from tokenselect.ops.rescale import rescale
from tokenselect.selectors.spread import central_patches, spread_frames


class Scoring(nn.Module):
    """What a selector asks for; a method answers `score_frames` and `score_map` at least."""

    needs_class_attention = False

    def score_frames(self, grid: TokenGrid, *, keep: int) -> Tensor:
        """Score every frame: (b, t)."""
        raise NotImplementedError

    def score_map(self, grid: TokenGrid) -> Tensor:
        """Score every patch: (b, t, h, w)."""
        raise NotImplementedError

    def score_anchors(self, grid: TokenGrid, *, side: Pair, stride: Pair) -> Tensor:
        """Score every anchor of each frame by the average of its patches: (b, t, g)."""
        return average_anchors(self.score_map(grid), side, stride)

    def score_patches(self, grid: TokenGrid, *, keep: int) -> Tensor:
        """Score every patch of each frame on its own: (b, t, n)."""
        return self.score_map(grid).flatten(2)


class LearnedScoring(Scoring):
    """The paper's: a scorer network, rescaled over its candidates (section 3.2 and 3.3).

    Args:
        network: maps (..., l, c) candidates to (..., l) scores.
    """

    def __init__(self, network: nn.Module) -> None:
        super().__init__()
        self.network = network

    def score_frames(self, grid: TokenGrid, *, keep: int) -> Tensor:
        """Score frames by what `frame_features` says of them."""
        return rescale(self.network(self.frame_features(grid)).float())

    def frame_features(self, grid: TokenGrid) -> Tensor:
        """Give the average patch of each frame: (b, t, c)."""
        return grid.patches.mean(dim=(2, 3))

    def score_map(self, grid: TokenGrid) -> Tensor:
        """Score each frame's patches, rescaled frame by frame."""
        return rescale(self.raw_scores(grid)).unflatten(2, grid.thw[1:])

    def raw_scores(self, grid: TokenGrid) -> Tensor:
        """Give the network's own scores of each frame's patches: (b, t, n)."""
        return self.network(grid.patches.flatten(2, 3)).float()


class AnchorFeatureScoring(LearnedScoring):
    """Scores anchors from their average features instead of averaging scores (Table 6, "A")."""

    def score_anchors(self, grid: TokenGrid, *, side: Pair, stride: Pair) -> Tensor:
        """Score the anchors of each frame."""
        maps = grid.patches.movedim(-1, 2)  # (b, t, c, h, w)
        features = average_anchors(maps, side, stride).transpose(2, 3)  # (b, t, g, c)
        return rescale(self.network(features).float())


class ReleasedScoring(LearnedScoring):
    """The authors' code: frames by average ‖ maximum, anchors averaged before the rescaling.

    Its network for frames is as wide as two tokens.
    """

    def frame_features(self, grid: TokenGrid) -> Tensor:
        """Give the average and the largest patch of each frame: (b, t, 2c)."""
        patches = grid.patches
        return torch.cat([patches.mean(dim=(2, 3)), patches.amax(dim=(2, 3))], dim=-1)

    def score_anchors(self, grid: TokenGrid, *, side: Pair, stride: Pair) -> Tensor:
        """Average raw scores within each anchor, then rescale over the anchors."""
        maps = self.raw_scores(grid).unflatten(2, grid.thw[1:])
        return rescale(average_anchors(maps, side, stride))


class FromUniformScoring(ReleasedScoring):
    """Begins as uniform selection and learns what to change: the network's scores come on top.

    Scores of an untrained network are stretched to [0, 1] like any others, and a frame that chance
    put several σ above the rest is hardly ever tried without. Here the network begins at 0, and the
    evenly spread frames, or the middle of the picture, lead.
    """

    def __init__(self, network: nn.Module) -> None:
        super().__init__(network)
        last = [part for part in network.modules() if isinstance(part, nn.Linear)][-1]
        nn.init.zeros_(last.weight)
        nn.init.zeros_(last.bias)

    def score_frames(self, grid: TokenGrid, *, keep: int) -> Tensor:
        """Score frames: the network's answer on top of evenly spread ones."""
        start = spread_frames(grid.thw[0], keep, grid.tokens.device)
        return rescale(self.network(self.frame_features(grid)).float() + start)

    def raw_scores(self, grid: TokenGrid) -> Tensor:
        """Score patches: the network's answer on top of their nearness to the centre."""
        start = central_patches(*grid.thw[1:], device=grid.tokens.device)
        return super().raw_scores(grid) + start.flatten()
