"""Methods without training for tokens that go to a language model."""

import torch
import torch.nn.functional as F
from torch import Tensor

from tokenselect.grid import TokenGrid
from tokenselect.selectors.scoring import Scoring


class RepeatScoring(Scoring):
    """Drops tokens that repeat the frame before, by direction (as efficient video sampling does).

    The first frame is all new. The published method drops a share of all tokens of a video; so
    does this one, at sites for single tokens of the clip.
    """

    def score_map(self, grid: TokenGrid) -> Tensor:
        """Give 1 − cosine against the frame before; the first frame is above all others."""
        patches = F.normalize(grid.patches.float(), dim=-1)
        change = 1 - (patches[:, 1:] * patches[:, :-1]).sum(dim=-1)  # (b, t − 1, h, w)
        first = torch.full_like(patches[:, :1, ..., 0], 3.0)  # 1 − cosine is at most 2
        return torch.cat([first, change], dim=1)


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
        return (patches @ words.transpose(1, 2)).amax(dim=-1).unflatten(1, grid.thw)


def spread_scores(tokens: Tensor, keep: int) -> Tensor:
    """Choose `keep` tokens one by one, each the farthest from those chosen before.

    Args:
        tokens: (b, n, c).
        keep: how many, 1 to n.

    Returns:
        (b, n) the earlier chosen, the higher; 0 for those that were not.
    """
    directions = F.normalize(tokens.float(), dim=-1)
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
