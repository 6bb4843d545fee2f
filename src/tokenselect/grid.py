"""The seam between selectors and backbones: tokens that know their place in time and space."""

from __future__ import annotations

from dataclasses import dataclass, replace

import torch
from torch import Tensor

from tokenselect.ops.pick import keep_prefix, pick_rows


@dataclass(frozen=True)
class TokenGrid:
    """Tokens of a clip: `num_prefix` class tokens, then t·h·w patches in (t, h, w) order.

    Models that encode each frame on its own have class tokens per frame: `num_frame_prefix` of
    them stand in front of each frame's patches, and go with their frame.

    A backbone's blocks and every selector map a `TokenGrid` to a `TokenGrid`; neither knows the
    other.
    """

    tokens: Tensor  # (b, p + t·h·w, c), or (b, p + t·(f + h·w), c) with f prefix tokens per frame
    thw: tuple[int, int, int]  # frames, rows and columns of the patches
    num_prefix: int = 0  # p, the class tokens in front; selection leaves them alone
    # (b, t, h, w) attention of the class token in the block before, or None where it was not asked
    # for; only the attention baseline reads it
    class_attention: Tensor | None = None
    # (b, t·h·w) place of each patch in the grid before any selection, or None for models whose
    # tokens carry their place already, as most do
    positions: Tensor | None = None
    num_frame_prefix: int = 0  # f, the class tokens in front of each frame
    # (b, m, c) features of the words that a language model is asked about the clip, or None; only
    # methods that look at the text read them
    prompt: Tensor | None = None
    # patches were chosen among all of the clip: a frame has any number, and `thw` only counts them
    is_loose: bool = False

    def __post_init__(self) -> None:
        if self.tokens.ndim != 3:
            raise ValueError(f"tokens must be (b, p + t·h·w, c), got {tuple(self.tokens.shape)}")
        if min(self.thw) < 1 or self.num_prefix < 0 or self.num_frame_prefix < 0:
            raise ValueError(
                f"thw must be positive, got {self.thw} with {self.num_prefix} prefix tokens and "
                f"{self.num_frame_prefix} per frame"
            )
        t, h, w = self.thw
        expected = self.num_prefix + t * (self.num_frame_prefix + h * w)
        if self.tokens.shape[1] != expected:
            per_frame = f" and {self.num_frame_prefix} per frame" if self.num_frame_prefix else ""
            raise ValueError(
                f"thw {self.thw} with {self.num_prefix} prefix tokens{per_frame} makes "
                f"{expected} tokens, got {self.tokens.shape[1]}"
            )

    @classmethod
    def from_patches(cls, patches: Tensor, prefix: Tensor | None = None) -> TokenGrid:
        """Join (b, t, h, w, c) patches and, if there are any, (b, p, c) prefix tokens."""
        t, h, w = patches.shape[1:4]
        tokens = patches.flatten(1, 3)  # (b, t·h·w, c)
        if prefix is None or prefix.shape[1] == 0:
            return cls(tokens, (t, h, w))
        return cls(torch.cat([prefix, tokens], dim=1), (t, h, w), prefix.shape[1])

    @property
    def prefix(self) -> Tensor:
        """(b, p, c) class tokens; p may be 0."""
        return self.tokens[:, : self.num_prefix]

    @property
    def frames(self) -> Tensor:
        """(b, t, f + h·w, c) tokens of each frame, those in front of its patches included; a view.

        Frames as a whole are moved, mixed and handed to models that encode each one on its own.
        """
        return self.tokens[:, self.num_prefix :].unflatten(1, (self.thw[0], -1))

    @property
    def patches(self) -> Tensor:
        """(b, t, h, w, c) patches, a view."""
        if not self.num_frame_prefix:
            return self.tokens[:, self.num_prefix :].unflatten(1, self.thw)
        return self.frames[:, :, self.num_frame_prefix :].unflatten(2, self.thw[1:])

    def with_tokens(self, tokens: Tensor, thw: tuple[int, int, int] | None = None) -> TokenGrid:
        """Return a grid of other tokens, same prefix; what was known of the old is dropped."""
        thw = thw or self.thw
        return replace(self, tokens=tokens, thw=thw, class_attention=None, positions=None)

    def with_patches(self, patches: Tensor) -> TokenGrid:
        """Return a grid of other (b, t, h, w, c) patches behind the same prefix tokens."""
        if not self.num_frame_prefix:
            grid = TokenGrid.from_patches(patches, self.prefix)
            return grid if self.prompt is None else replace(grid, prompt=self.prompt)
        own = self.frames[:, :, : self.num_frame_prefix]
        frames = torch.cat([own, patches.flatten(2, 3)], dim=2)
        return self.with_frames(frames, (patches.shape[2], patches.shape[3]))

    def with_frames(self, frames: Tensor, hw: tuple[int, int] | None = None) -> TokenGrid:
        """Return a grid of other (b, t, f + h·w, c) frames behind the same prefix tokens."""
        tokens = frames.flatten(1, 2)
        if self.num_prefix:
            tokens = torch.cat([self.prefix, tokens], dim=1)
        return self.with_tokens(tokens, (frames.shape[1], *(hw or self.thw[1:])))

    def pick(self, patches: Tensor, thw: tuple[int, int, int]) -> TokenGrid:
        """Keep some patches, with their positions, and the prefix tokens of the frames kept.

        `patches` (b, k) says which, in their new order: frame by frame where frames have prefixes.
        The product of the smaller grid, `thw`, is k.
        """
        rows = keep_prefix(patches, self.num_prefix)
        if self.num_frame_prefix:
            rows = keep_prefix(self._rows_with_frame_prefix(patches, thw[0]), self.num_prefix)
        return self.with_tokens(pick_rows(self.tokens, rows), thw).placed_by(self, patches)

    def _rows_with_frame_prefix(self, patches: Tensor, t: int) -> Tensor:
        """Turn (b, k) patches into their rows behind the prefix, each frame's own prefix first."""
        f, n = self.num_frame_prefix, self.thw[1] * self.thw[2]
        frame, place = patches // n, patches % n
        inside = (frame * (f + n) + f + place).unflatten(1, (t, -1))  # (b, t, k/t)
        start = frame.unflatten(1, (t, -1))[:, :, :1] * (f + n)  # (b, t, 1)
        own = start + torch.arange(f, device=patches.device)
        return torch.cat([own, inside], dim=2).flatten(1)

    def placed_by(self, source: TokenGrid, patches: Tensor) -> TokenGrid:
        """Take over the positions, if any, of the (b, k) patches of `source` that are kept here."""
        if source.positions is None:
            return self
        return replace(self, positions=source.positions.gather(1, patches))

    def repeated(self, times: int) -> TokenGrid:
        """Give every clip several times, one after the other."""
        own = ("tokens", "class_attention", "positions", "prompt")
        known = {name: value for name in own if (value := getattr(self, name)) is not None}
        return replace(self, **{k: v.repeat_interleave(times, dim=0) for k, v in known.items()})

    def placed(self) -> TokenGrid:
        """Number the patches, if they have no positions yet."""
        if self.positions is not None:
            return self
        t, h, w = self.thw
        places = torch.arange(t * h * w, device=self.tokens.device)
        return replace(self, positions=places.expand(self.tokens.shape[0], -1))

    def __repr__(self) -> str:
        b, _, c = self.tokens.shape
        t, h, w = self.thw
        prefix = f"{self.num_prefix} + " if self.num_prefix else ""
        frame = f"{h}×{w}"
        if self.num_frame_prefix:
            frame = f"({self.num_frame_prefix} + {frame})"
        return f"TokenGrid(b={b}, tokens={prefix}{t}×{frame}, c={c})"
