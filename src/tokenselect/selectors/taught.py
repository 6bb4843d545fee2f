"""Taught scoring: a network that sees each frame among its neighbours, blended with an even spread.

A dense model of the task already knows what its answer depends on; `tokenselect.training.teach`
fits these networks to that and sets how far to trust them. Untaught, this is uniform selection.
"""

from typing import Any, cast

import torch
import torch.nn.functional as F
from torch import Tensor, nn

from tokenselect.grid import TokenGrid
from tokenselect.ops.anchors import Pair, average_anchors
from tokenselect.ops.noise import without_autocast
from tokenselect.selectors.scoring import Scoring, central_patches, even_frames, score_precisely

SPREAD = 0.25  # deviation of the scores: that of scores stretched to [0, 1], so σ keeps its unit
KERNEL = 5  # frames, or patches to a side, that a convolution sees
GAPS = 8  # frames apart, up to which a kept frame may repeat another
PLACES = 3  # places of a frame are described in as many rows and columns
FEATURES = 4 + 2 * PLACES**2  # of each channel, that describe a frame


class FrameNetwork(nn.Module):
    """Scores frames from their features, those of their neighbours and the clip's average."""

    repetition: Tensor  # what two kept frames lose that are 1, 2, … apart

    def __init__(self, width: int, *, hidden: int) -> None:
        super().__init__()
        self.norm = nn.LayerNorm(width)
        self.embed = nn.Linear(width, hidden)
        self.mix = nn.ModuleList(
            nn.Conv1d(hidden, hidden, KERNEL, padding=KERNEL // 2, padding_mode="replicate")
            for _ in range(2)
        )
        self.score = nn.Linear(hidden, 1)
        self.register_buffer("repetition", torch.zeros(GAPS))

    def forward(self, features: Tensor) -> Tensor:
        """Map (b, t, width) features to (b, t) scores."""
        hidden = F.gelu(self.embed(self.norm(features)))
        hidden = (hidden - hidden.mean(dim=1, keepdim=True)).transpose(1, 2)  # (b, hidden, t)
        for convolution in self.mix:
            hidden = hidden + F.gelu(convolution(hidden))
        return self.score(hidden.transpose(1, 2)).squeeze(-1)


class PatchNetwork(nn.Module):
    """Scores a frame's patches from their features, those around them and the frame's average."""

    def __init__(self, width: int) -> None:
        super().__init__()
        hidden = max(1, width // 4)
        self.norm = nn.LayerNorm(width)
        self.embed = nn.Linear(width, hidden)
        self.mix = nn.Linear(2 * hidden, hidden)
        self.around = nn.ModuleList(
            nn.Conv2d(hidden, hidden, KERNEL, padding="same", groups=hidden) for _ in range(2)
        )
        self.score = nn.Linear(hidden, 1)

    def forward(self, features: Tensor) -> Tensor:
        """Map (b, t, h, w, width) features to (b, t, h, w) scores."""
        hidden = F.gelu(self.embed(self.norm(features)))
        mean = hidden.mean(dim=(2, 3), keepdim=True).expand_as(hidden)
        hidden = F.gelu(self.mix(torch.cat([hidden, mean], dim=-1)))
        maps = hidden.flatten(0, 1).permute(0, 3, 1, 2)  # (b·t, hidden, h, w)
        for convolution in self.around:
            maps = maps + F.gelu(convolution(maps))
        return self.score(maps.permute(0, 2, 3, 1)).squeeze(-1).unflatten(0, hidden.shape[:2])


def space_out(scores: Tensor, keep: int, repetition: Tensor) -> Tensor:
    """Lower (b, t) scores of frames by what they repeat of better ones, so that others are kept.

    The best frame is taken first, and those 1, 2, … frames away lose `repetition`; then the best of
    the rest. A taken frame loses nothing more, so the `keep` highest of the result were taken.
    """
    t = scores.shape[1]
    places = torch.arange(t, device=scores.device)
    reach = F.pad(repetition.clamp_min(0), (1, max(0, t - len(repetition))))
    lost = reach[(places[:, None] - places).abs()]  # (t, t), 0 on the diagonal
    is_taken = torch.zeros_like(scores, dtype=torch.bool)
    for _ in range(keep - 1):
        best = scores.masked_fill(is_taken, -torch.inf).argmax(dim=1, keepdim=True)  # (b, 1)
        is_taken = is_taken | (places == best)
        scores = torch.where(is_taken, scores, scores - lost[best.squeeze(1)])
    return scores


def average_places(maps: Tensor, sides: tuple[Tensor, Tensor]) -> Tensor:
    """Average (b, h, w, c) maps by the shares of rows and of columns: (b, PLACES²·c)."""
    rows = sides[0] @ maps.flatten(2)  # (b, PLACES, w·c)
    return (sides[1] @ rows.unflatten(2, maps.shape[2:])).flatten(1)


def share_side(length: int, like: Tensor) -> Tensor:
    """Give what averages each of PLACES equal parts, which may overlap: (PLACES, length)."""
    spots = torch.arange(length, device=like.device)
    parts = torch.arange(PLACES, device=like.device)[:, None]
    first, last = parts * length // PLACES, -(-(parts + 1) * length // PLACES)
    is_within = (spots >= first) & (spots < last)
    return (is_within / is_within.sum(dim=1, keepdim=True)).to(like.dtype)


class TaughtScoring(Scoring):
    """A network's scores of frames ("T") or places ("S"), weighed with even ones by `evenness`.

    The network's last layer begins at 0, so the even frames, or the middle of the picture, lead
    until it has learnt otherwise. Its scores are not stretched: a lead of the first hour can be
    lost again, and the noise keeps its unit. Frames that repeat each other are spaced out.
    """

    evenness: Tensor  # share of uniform selection in the scores; at 1 nothing else counts
    steadiness: Tensor  # share of the clip's average in a frame's regions; at 1 all frames agree
    anchor_parts = 3  # with the whole stride, a region often holds half of what matters
    is_spaced = False  # whether kept frames were found to repeat each other

    def __init__(self, kind: str, channels: int) -> None:
        super().__init__()
        self.network: FrameNetwork | PatchNetwork = PatchNetwork(2 * channels)
        if kind == "T":
            self.network = FrameNetwork(FEATURES * channels, hidden=2 * channels)
        self.register_buffer("evenness", torch.tensor(0.5))
        self.register_buffer("steadiness", torch.tensor(1.0))
        nn.init.zeros_(self.network.score.weight)
        nn.init.zeros_(self.network.score.bias)
        self.register_load_state_dict_post_hook(TaughtScoring.look)

    @property
    def trusted(self) -> tuple[float, float]:
        """The share of uniform selection, and that of the clip's average."""
        return float(self.evenness), float(self.steadiness)

    def trust(self, evenness: float, steadiness: float) -> None:
        """Set the share of uniform selection, and that of the clip's average."""
        self.evenness.fill_(evenness)
        self.steadiness.fill_(steadiness)
        self.look()

    def look(self, *_: Any) -> None:
        """Read the values that decide which steps are left out."""
        if self.evenness.is_meta:
            return
        self.is_even = bool(self.evenness == 1)
        if isinstance(self.network, FrameNetwork):
            self.is_spaced = not self.is_even and bool((self.network.repetition > 0).any())

    def score_frames(self, grid: TokenGrid, *, keep: int) -> Tensor:
        """Score frames by their content, an even spread of `keep`, and what they repeat."""
        even = even_frames(grid.thw[0], keep, grid.tokens.device)
        with without_autocast(grid.tokens.device.type):
            features = self.frame_features(grid)
        scores = self._weigh(score_precisely(self.network, features), even)
        if not self.is_spaced:
            return scores
        repetition = cast(FrameNetwork, self.network).repetition.float()
        return space_out(scores, keep, SPREAD * (1 - self.evenness) * repetition)

    def score_map(self, grid: TokenGrid) -> Tensor:
        """Score patches by their content and by their nearness to the centre."""
        even = central_patches(*grid.thw[1:], device=grid.tokens.device)
        return self._weigh(score_precisely(self.network, self.patch_features(grid)), even)

    def score_anchors(self, grid: TokenGrid, *, side: Pair, stride: Pair) -> Tensor:
        """Average patches within each anchor, and anchors over time, then weigh."""
        h, w = grid.thw[1:]
        even = average_anchors(central_patches(h, w, device=grid.tokens.device), side, stride)
        scores = score_precisely(self.network, self.patch_features(grid))
        scores = average_anchors(scores, side, stride)  # (b, t, g)
        scores = torch.lerp(scores, scores.mean(dim=1, keepdim=True), self.steadiness)
        return self._weigh(scores, even)

    def frame_features(self, grid: TokenGrid) -> Tensor:
        """Describe each frame: (b, t, FEATURES·c).

        Average and maximum of its patches; their way from their average over time and from before;
        and of each of a few places the average, beside that over time, and how far patches went.
        """
        frames, hw = grid.patches.flatten(2, 3), grid.thw[1:]  # (b, t, n, c)
        usual = frames.mean(dim=1)  # (b, n, c)
        sides = share_side(hw[0], usual), share_side(hw[1], usual)
        is_plain = not (torch.is_grad_enabled() or torch.compiler.is_compiling())
        room = torch.empty_like(usual) if is_plain else None  # fresh memory costs as much again
        described, seen, before = [], [], frames[:, 0]
        for frame in frames.unbind(1):  # one at a time: each stays in the processor's cache
            moved = torch.abs(torch.sub(frame, before, out=room), out=room).mean(dim=1)
            away = torch.abs(torch.sub(frame, usual, out=room), out=room)
            whole = [frame.mean(dim=1), frame.amax(dim=1), away.mean(dim=1), moved]
            whole.append(average_places(away.unflatten(1, hw), sides))
            described.append(torch.cat(whole, dim=-1))
            seen.append(average_places(frame.unflatten(1, hw), sides))
            before = frame
        averages = torch.stack(seen, dim=1)  # (b, t, places·c)
        averages = averages - averages.mean(dim=1, keepdim=True)
        return torch.cat([torch.stack(described, dim=1), averages], dim=-1)

    def patch_features(self, grid: TokenGrid) -> Tensor:
        """Give each patch and its way from its average over time: (b, t, h, w, 2c)."""
        usual = grid.patches.mean(dim=1, keepdim=True)
        return torch.cat([grid.patches, grid.patches - usual], dim=-1)

    def _weigh(self, scores: Tensor, even: Tensor) -> Tensor:
        """Add scores and those of uniform selection, as of one frame, in equal spread.

        Anchors that are all as far from the centre differ by rounding alone, which must not count.
        """
        even = (even - even.mean()) / even.std(correction=0).clamp_min(1e-3)
        return SPREAD * ((1 - self.evenness) * scores + self.evenness * even)
