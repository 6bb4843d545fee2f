"""The seam between selectors and backbones: tokens that know their place in time and space."""

from __future__ import annotations

from dataclasses import dataclass, replace

import torch
from torch import Tensor


@dataclass(frozen=True)
class TokenGrid:
    """Tokens of a clip: `num_prefix` class tokens, then t·h·w patches in (t, h, w) order.

    A backbone's blocks and every selector map a `TokenGrid` to a `TokenGrid`; neither knows the
    other.

    Attributes:
        tokens: (b, p + t·h·w, c).
        thw: frames, rows and columns of the patches.
        num_prefix: p, the class tokens in front; selection leaves them alone.
        class_attention: (b, t, h, w) attention of the class token in the block before, or None
            where it was not asked for; only the attention baseline reads it.
        positions: (b, t·h·w) place of each patch in the grid before any selection, or None for
            models whose tokens carry their place already, as most do.
    """

    tokens: Tensor
    thw: tuple[int, int, int]
    num_prefix: int = 0
    class_attention: Tensor | None = None
    positions: Tensor | None = None

    def __post_init__(self) -> None:
        if self.tokens.ndim != 3:
            raise ValueError(f"tokens must be (b, p + t·h·w, c), got {tuple(self.tokens.shape)}")
        if min(self.thw) < 1 or self.num_prefix < 0:
            raise ValueError(f"thw must be positive, got {self.thw} with {self.num_prefix} prefix")
        t, h, w = self.thw
        expected = self.num_prefix + t * h * w
        if self.tokens.shape[1] != expected:
            raise ValueError(
                f"thw {self.thw} with {self.num_prefix} prefix tokens makes {expected} tokens, "
                f"got {self.tokens.shape[1]}"
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
    def patches(self) -> Tensor:
        """(b, t, h, w, c) patches, a view."""
        return self.tokens[:, self.num_prefix :].unflatten(1, self.thw)

    def with_tokens(self, tokens: Tensor, thw: tuple[int, int, int] | None = None) -> TokenGrid:
        """Return a grid of other tokens, same prefix; what was known of the old is dropped."""
        thw = thw or self.thw
        return replace(self, tokens=tokens, thw=thw, class_attention=None, positions=None)

    def with_patches(self, patches: Tensor) -> TokenGrid:
        """Return a grid of other (b, t, h, w, c) patches behind the same prefix tokens."""
        return TokenGrid.from_patches(patches, self.prefix)

    def placed_by(self, source: TokenGrid, patches: Tensor) -> TokenGrid:
        """Take over the positions, if any, of the (b, k) patches of `source` that are kept here."""
        if source.positions is None:
            return self
        return replace(self, positions=source.positions.gather(1, patches))

    def __repr__(self) -> str:
        b, _, c = self.tokens.shape
        t, h, w = self.thw
        prefix = f"{self.num_prefix} + " if self.num_prefix else ""
        return f"TokenGrid(b={b}, tokens={prefix}{t}×{h}×{w}, c={c})"
