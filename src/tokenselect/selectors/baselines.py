"""Methods without training: the baselines of Table 1, motion, repetition, diversity, text; and
static scores, which are learned but see nothing."""

import torch
import torch.nn.functional as F
from torch import Tensor, nn

from tokenselect.grid import TokenGrid
from tokenselect.ops.anchors import Pair, anchor_corners
from tokenselect.ops.noise import rescale, without_autocast
from tokenselect.plan import THW
from tokenselect.selectors.scoring import Scoring, central_patches, middles


class RandomScoring(Scoring):
    """Every candidate is as likely as any other; drawn anew at each call, in testing too."""

    def score_frames(self, grid: TokenGrid, *, keep: int) -> Tensor:
        """Draw a score a frame."""
        return _random_like(grid, grid.thw[0])

    def score_map(self, grid: TokenGrid) -> Tensor:
        """Draw a score a patch."""
        return _random_like(grid, *grid.thw)

    def score_anchors(self, grid: TokenGrid, *, side: Pair, stride: Pair) -> Tensor:
        """Draw a score an anchor: averages of patches would favour the border."""
        return _random_like(grid, grid.thw[0], len(anchor_corners(grid.thw[1:], side, stride)))


class UniformScoring(Scoring):
    """Evenly spaced frames and patches, and of the regions the one in the centre."""

    is_blind = True

    def score_frames(self, grid: TokenGrid, *, keep: int) -> Tensor:
        """Mark the frames in the middle of `keep` equal parts of the clip."""
        return _evenly_spaced(grid, grid.thw[0], keep)

    def score_map(self, grid: TokenGrid) -> Tensor:
        """Score patches by how near they are to the centre."""
        scores = central_patches(*grid.thw[1:], device=grid.tokens.device)
        return scores.expand(grid.tokens.shape[0], *grid.thw)

    def score_patches(self, grid: TokenGrid, *, keep: int) -> Tensor:
        """Mark evenly spaced patches of each frame."""
        t, h, w = grid.thw
        return _evenly_spaced(grid, h * w, keep)[:, None].expand(-1, t, -1)


class AttentionScoring(Scoring):
    """Attention of the class token in the block before; cannot be had before block 0 or without
    a class token (Table 1, "N/A")."""

    needs_class_attention = True

    def score_map(self, grid: TokenGrid) -> Tensor:
        """Give the attention of the class token itself."""
        if grid.class_attention is None:
            raise ValueError(
                "the attention method needs the class token's attention of the block before, "
                "and this grid has none"
            )
        return grid.class_attention.float()


class MotionScoring(Scoring):
    """Change against the frame before; the first frame is compared with the second."""

    def score_map(self, grid: TokenGrid) -> Tensor:
        """Give the length of each patch's change."""
        patches = grid.patches.float()
        if grid.thw[0] == 1:
            return torch.zeros_like(patches[..., 0])
        change = patches.diff(dim=1).norm(dim=-1)  # (b, t − 1, h, w)
        return torch.cat([change[:, :1], change], dim=1)


class RunLengthScoring(Scoring):
    """Drops tokens that repeat the frame before; the first frame is all new (run-length tokens).

    The published method compares pixels against a fixed threshold and tells the model how long each
    run was; here tokens are compared, as many stay as the plan says, and the backbone is left as it
    is.
    """

    def score_map(self, grid: TokenGrid) -> Tensor:
        """Give the change of each patch; the first frame's is above all others."""
        patches = grid.patches.float()
        change = self.change(patches)  # (b, t − 1, h, w)
        first = torch.ones_like(patches[:, :1, ..., 0])
        if grid.thw[0] > 1:
            first = first + change.amax(dim=(1, 2, 3), keepdim=True)
        return torch.cat([first, change], dim=1)

    def change(self, patches: Tensor) -> Tensor:
        """Give the mean change against the frame before."""
        return patches.diff(dim=1).abs().mean(dim=-1)


class RepeatScoring(RunLengthScoring):
    """The same by direction, as efficient video sampling does.

    The published method drops a share of all tokens of a video; so does this one, at sites for
    single tokens of the clip.
    """

    def change(self, patches: Tensor) -> Tensor:
        """Give 1 − cosine against the frame before."""
        return 1 - F.cosine_similarity(patches[:, 1:], patches[:, :-1], dim=-1)


class NoveltyScoring(Scoring):
    """Distance to the clip's average: what stands out stays."""

    def score_map(self, grid: TokenGrid) -> Tensor:
        """Give each patch's distance to the average of its place over time."""
        patches = grid.patches.float()
        return (patches - patches.mean(dim=1, keepdim=True)).norm(dim=-1)


class DiversityScoring(Scoring):
    """Keeps the tokens that lie farthest apart: greedy max–min distance (as in DivPrune).

    Distances are 1 − cosine. The first choice is the token whose nearest neighbour is farthest.
    """

    def score_frames(self, grid: TokenGrid, *, keep: int) -> Tensor:
        """Choose among the frames by their average token."""
        return spread_scores(grid.patches.mean(dim=(2, 3)), keep)

    def score_patches(self, grid: TokenGrid, *, keep: int) -> Tensor:
        """Choose among the patches of each frame."""
        patches = grid.patches.flatten(2, 3)  # (b, t, n, c)
        return spread_scores(patches.flatten(0, 1), keep).unflatten(0, patches.shape[:2])

    def score_clip(self, grid: TokenGrid, *, keep: int) -> Tensor:
        """Choose among all patches of the clip."""
        return spread_scores(grid.patches.flatten(1, 3), keep)


class TextScoring(Scoring):
    """Keeps the tokens that look most like a word of the prompt: the highest cosine with any."""

    needs_prompt = True

    def score_map(self, grid: TokenGrid) -> Tensor:
        """Give each patch's likeness to the nearest word."""
        if grid.prompt is None or grid.prompt.shape[-1] != grid.tokens.shape[-1]:
            found = "none" if grid.prompt is None else f"width {grid.prompt.shape[-1]}"
            raise ValueError(
                f"method 'text' needs words as wide as the tokens ({grid.tokens.shape[-1]}), got "
                f"{found}: it works in a video-language model, at the site after its tower"
            )
        words = F.normalize(grid.prompt.float(), dim=-1)  # (b, m, c)
        patches = F.normalize(grid.patches.flatten(1, 3).float(), dim=-1)
        with without_autocast(patches.device.type):
            return (patches @ words.transpose(1, 2)).amax(dim=-1).unflatten(1, grid.thw)


def spread_scores(tokens: Tensor, keep: int) -> Tensor:
    """Choose `keep` tokens one by one, each the farthest from those chosen before.

    Returns:
        (b, n) the earlier chosen, the higher; 0 for those that were not.
    """
    directions = F.normalize(tokens.float(), dim=-1)
    with without_autocast(tokens.device.type):
        distance = 1 - directions @ directions.transpose(1, 2)  # (b, n, n)
    apart = distance + 4 * torch.eye(tokens.shape[1], device=tokens.device)  # not from itself
    nearest = apart.amin(dim=2)  # (b, n)
    scores = torch.zeros_like(nearest)
    for turn in range(keep):
        chosen = nearest.masked_fill(scores > 0, -1.0).argmax(dim=1, keepdim=True)  # (b, 1)
        scores = scores.scatter(1, chosen, float(keep - turn))
        rows = distance.gather(1, chosen[..., None].expand(-1, -1, tokens.shape[1])).squeeze(1)
        nearest = rows if turn == 0 else torch.minimum(nearest, rows)
    return scores


def _random_like(grid: TokenGrid, *shape: int) -> Tensor:
    """Draw (b, *shape) uniform numbers on the grid's device."""
    return torch.rand(grid.tokens.shape[0], *shape, device=grid.tokens.device)


def _evenly_spaced(grid: TokenGrid, length: int, keep: int) -> Tensor:
    """Score 1 at the middles of `keep` equal parts of `length`, 0 elsewhere: (b, length)."""
    scores = torch.zeros(length, device=grid.tokens.device)
    scores[middles(length, keep)] = 1.0
    return scores.expand(grid.tokens.shape[0], -1)


class StaticScoring(Scoring):
    """One learned score a position: of frames (kind "T"), or of places that all frames share ("S").

    Trained through the same relaxation as the paper's scorer. Most of what a selector gains on data
    whose action sits in the middle of clip and picture is gained by this one, too. On another grid
    than `thw`, that of the site, the scores are interpolated.
    """

    is_blind = True

    def __init__(self, kind: str, thw: THW) -> None:
        super().__init__()
        shape = thw[:1] if kind == "T" else thw[1:]
        self.position_scores = nn.Parameter(0.02 * torch.randn(shape))

    def score_frames(self, grid: TokenGrid, *, keep: int) -> Tensor:
        """Give every clip the same scores."""
        return rescale(self.resized(grid.thw[:1])).expand(grid.tokens.shape[0], -1)

    def score_map(self, grid: TokenGrid) -> Tensor:
        """Give every frame the same scores."""
        t, h, w = grid.thw
        scores = rescale(self.resized((h, w)).flatten()).unflatten(0, (h, w))
        return scores.expand(grid.tokens.shape[0], t, h, w)

    def resized(self, sides: tuple[int, ...]) -> Tensor:
        """Give the scores on a grid of these sides."""
        scores = self.position_scores.float()
        if tuple(scores.shape) == sides:
            return scores
        mode = "linear" if len(sides) == 1 else "bilinear"
        return F.interpolate(scores[None, None], size=sides, mode=mode)[0, 0]
