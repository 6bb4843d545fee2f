"""Scoring: how much each frame, region or patch of a grid matters. Methods differ only in this."""

import torch
from torch import Tensor, nn

from tokenselect.grid import TokenGrid
from tokenselect.ops.anchors import Pair, average_anchors
from tokenselect.ops.noise import rescale, without_autocast

ENVELOPE = 0.9  # under 1, so that frames in the middle of a part stay above all others
STEEPNESS = 4.0  # of patches: regions are averages, whose scores lie closer together
GRAIN = 2**12  # of patches' scores, between two whole numbers


def middles(length: int, keep: int) -> list[int]:
    """List the middles of `keep` equal parts of `length`."""
    return [(2 * part + 1) * length // (2 * keep) for part in range(keep)]


def even_frames(length: int, keep: int, device: torch.device) -> Tensor:
    """Score frames: the middles of `keep` equal parts lie above all others; (t,).

    A frame loses 1 for each step from the nearest middle, and up to 0.9 towards the ends of the
    clip, so that no two neighbours in rank are far apart: what is learnt on top can change places.
    """
    places = torch.arange(length, device=device, dtype=torch.float32)
    kept = torch.tensor(middles(length, keep), device=device, dtype=torch.float32)
    steps = (places[:, None] - kept).abs().amin(dim=1)
    return -steps - ENVELOPE * from_centre(length, device).abs()


def central_patches(h: int, w: int, device: torch.device) -> Tensor:
    """Score patches by how near they are to the centre, from −4 in the corners: (h, w).

    Few bits, so that sums over regions are exact: regions equally far from the centre tie in every
    runtime, whatever order it adds in, and the first of them is kept.
    """
    rows, columns = from_centre(h, device).square(), from_centre(w, device).square()
    return (-STEEPNESS * (rows[:, None] + columns) / 2 * GRAIN).round() / GRAIN


def from_centre(length: int, device: torch.device) -> Tensor:
    """Give the way from the centre, −1 to 1: (length,)."""
    half = max(length - 1, 1) / 2
    return (torch.arange(length, device=device, dtype=torch.float32) - (length - 1) / 2) / half


class Scorer(nn.Module):
    """The paper's two fully connected layers on local ‖ global features, with C' = C/2.

    The global half is the same for every candidate and enters a last linear layer, so it moves all
    scores alike and the rescaling that follows takes it out again: it is kept because the paper has
    it. `ReleasedScorer` puts it before a non-linear layer, where it counts.
    """

    def __init__(self, channels: int) -> None:
        super().__init__()
        hidden = max(1, channels // 2)
        self.local = nn.Linear(channels, hidden)
        self.activation = nn.GELU()
        self.score = nn.Linear(2 * hidden, 1)

    def forward(self, candidates: Tensor) -> Tensor:
        """Map (..., l, c) candidates to (..., l) scores."""
        local = self.local(candidates)
        mean = local.mean(dim=-2, keepdim=True).expand_as(local)
        return self.score(self.activation(torch.cat([local, mean], dim=-1))).squeeze(-1)


class ReleasedScorer(nn.Module):
    """The network of the authors' released code, so that their checkpoints can be loaded."""

    def __init__(self, channels: int) -> None:
        super().__init__()
        half, quarter = max(1, channels // 2), max(1, channels // 4)
        self.embed = nn.Sequential(nn.LayerNorm(channels), nn.Linear(channels, channels), nn.GELU())
        first, second = nn.Linear(channels, half), nn.Linear(half, quarter)
        self.score = nn.Sequential(first, nn.GELU(), second, nn.GELU(), nn.Linear(quarter, 1))

    def forward(self, candidates: Tensor) -> Tensor:
        """Map (..., l, c) candidates to (..., l) scores."""
        local, shared = self.embed(candidates).chunk(2, dim=-1)
        mean = shared.mean(dim=-2, keepdim=True).expand_as(shared)
        return self.score(torch.cat([local, mean], dim=-1)).squeeze(-1)


def score_precisely(network: nn.Module, candidates: Tensor) -> Tensor:
    """Score in float32 under autocast too: scores often differ by less than bfloat16 can tell."""
    if any(weight.dtype != torch.float32 for weight in network.parameters()):
        return network(candidates).float()
    with without_autocast(candidates.device.type):
        return network(candidates.float())


class Scoring(nn.Module):
    """What a selector asks for; a method answers `score_map` at least, or `score_frames`, too."""

    needs_class_attention = False
    needs_prompt = False
    anchor_parts = 1  # of the authors' stride, from anchor to anchor
    is_even = False  # whether nothing can be learnt, so that training selects hard, too
    is_blind = False  # whether frames are scored by their places alone, before any pixel is known

    def score_frames(self, grid: TokenGrid, *, keep: int) -> Tensor:
        """Score every frame by the average of its patches: (b, t)."""
        return self.score_map(grid).mean(dim=(2, 3))

    def score_map(self, grid: TokenGrid) -> Tensor:
        """Score every patch: (b, t, h, w)."""
        raise NotImplementedError

    def score_anchors(self, grid: TokenGrid, *, side: Pair, stride: Pair) -> Tensor:
        """Score every anchor of each frame by the average of its patches: (b, t, g)."""
        return average_anchors(self.score_map(grid), side, stride)

    def score_patches(self, grid: TokenGrid, *, keep: int) -> Tensor:
        """Score every patch of each frame on its own: (b, t, n)."""
        return self.score_map(grid).flatten(2)

    def score_clip(self, grid: TokenGrid, *, keep: int) -> Tensor:
        """Score every patch among all of the clip: (b, t·n)."""
        return self.score_map(grid).flatten(1)


class LearnedScoring(Scoring):
    """The paper's: a scorer network, rescaled over its candidates (section 3.2 and 3.3)."""

    def __init__(self, network: nn.Module) -> None:
        super().__init__()
        self.network = network

    def score_frames(self, grid: TokenGrid, *, keep: int) -> Tensor:
        """Score frames by what `frame_features` says of them."""
        return rescale(score_precisely(self.network, self.frame_features(grid)))

    def frame_features(self, grid: TokenGrid) -> Tensor:
        """Give the average patch of each frame: (b, t, c)."""
        return grid.patches.mean(dim=(2, 3))

    def score_map(self, grid: TokenGrid) -> Tensor:
        """Score each frame's patches, rescaled frame by frame."""
        return rescale(self.raw_scores(grid)).unflatten(2, grid.thw[1:])

    def raw_scores(self, grid: TokenGrid) -> Tensor:
        """Give the network's own scores of each frame's patches: (b, t, n)."""
        return score_precisely(self.network, grid.patches.flatten(2, 3))


class AnchorFeatureScoring(LearnedScoring):
    """Scores anchors from their average features instead of averaging scores (Table 6, "A")."""

    def score_anchors(self, grid: TokenGrid, *, side: Pair, stride: Pair) -> Tensor:
        """Score the anchors of each frame."""
        maps = grid.patches.movedim(-1, 2)  # (b, t, c, h, w)
        features = average_anchors(maps, side, stride).transpose(2, 3)  # (b, t, g, c)
        return rescale(score_precisely(self.network, features))


class ReleasedScoring(LearnedScoring):
    """The authors' code: frames by average ‖ maximum, anchors averaged before the rescaling.

    Its network for frames is as wide as two tokens.
    """

    def frame_features(self, grid: TokenGrid) -> Tensor:
        """Give the average and the largest patch of each frame: (b, t, 2c)."""
        return torch.cat([grid.patches.mean(dim=(2, 3)), grid.patches.amax(dim=(2, 3))], dim=-1)

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
        start = even_frames(grid.thw[0], keep, grid.tokens.device)
        return rescale(score_precisely(self.network, self.frame_features(grid)) + start)

    def raw_scores(self, grid: TokenGrid) -> Tensor:
        """Score patches: the network's answer on top of their nearness to the centre."""
        start = central_patches(*grid.thw[1:], device=grid.tokens.device)
        return super().raw_scores(grid) + start.flatten()
