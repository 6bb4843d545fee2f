"""Several videos in one sequence: which token is whose, and attention within a frame or a window.

A tower of transformers splits its sequence at bounds that it reads from a tensor, which nothing
that traces a model can follow. While a graph is traced, `Groups` takes the place of these bounds:
shapes then follow from the plan alone.
"""

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from importlib import import_module
from typing import Any, Self

import torch
import torch.nn.functional as F
from torch import Tensor, nn

from tokenselect.plan import THW


@dataclass(eq=False)
class Packed:
    """The tokens of several videos, one after the other; an image is a video of one frame.

    The sequence holds each video in raster order or, with `window`, window by window within each
    frame. It knows nothing of the tokens' values.
    """

    whole: tuple[THW, ...]  # the grid of each video before any selection
    thws: tuple[THW, ...]  # what is left of them, as grids
    # (k,) the tokens that are left of each video, counted in its whole grid, rising
    places: tuple[Tensor, ...]
    window: int | None = None  # rows and columns of a window, or None for raster order
    is_loose: bool = False  # frames may differ in how many tokens are left of them

    def __post_init__(self) -> None:
        sizes = [t * h * w for t, h, w in self.whole]
        starts = [sum(sizes[:index]) for index in range(len(sizes))]
        self.total = sum(sizes)  # how many tokens there were at first
        self.lengths = [len(places) for places in self.places]  # how many are left of each video
        # (n,) the tokens that are left, counted through the whole grids in raster order
        self.indices = torch.cat([p + s for p, s in zip(self.places, starts, strict=True)])
        # (n,) which token, counted video by video in raster order, stands at each place
        self.order = torch.arange(len(self), device=self.indices.device)
        ids = self.number(self._windows)
        if self.window is not None:  # no two keys are equal: not all runtimes sort stably
            self.order = (ids * self.total + self.indices).argsort()
        # (n,) the window of each token, counted through all videos, in the sequence's order
        self.window_ids = ids[self.order]
        # (n,) the frame of each token, likewise
        self.frame_ids = self.number(lambda p, thw: p // (thw[1] * thw[2]))[self.order]
        # (n,) where the tokens stood in the sequence of all tokens, likewise
        self.rows = torch.arange(self.total, device=self.order.device)
        if not self.is_whole:
            full = Packed.of(self.whole, device=self.order.device, window=self.window)
            self.rows = full.order.argsort()[self.indices][self.order]

    @classmethod
    def of(cls, thws: Sequence[THW], *, device: torch.device, window: int | None = None) -> Self:
        """Begin with all tokens of videos of these grids."""
        places = tuple(torch.arange(t * h * w, device=device) for t, h, w in thws)
        return cls(tuple(thws), tuple(thws), places, window)

    @property
    def is_whole(self) -> bool:
        """Nothing was dropped."""
        return len(self) == self.total

    def __len__(self) -> int:
        return sum(self.lengths)

    @property
    def mask(self) -> Tensor:
        """(all,) true for tokens that are left, counted through the whole grids."""
        mask = torch.zeros(self.total, dtype=torch.bool, device=self.indices.device)
        return mask.index_fill(0, self.indices, True)

    def rows_in(self, before: "Packed") -> Tensor:
        """(n,) where the tokens that are left stand among those of `before`, in raster order."""
        rows = torch.zeros(self.total, dtype=torch.long, device=self.indices.device)
        places = torch.arange(len(before), device=rows.device)
        return rows.index_copy(0, before.indices, places)[self.indices]

    def bounds(self, ids: Tensor, unit: int) -> Tensor:
        """Give where each run of equal ids begins and ends, in units of `unit` patches a token."""
        counts = torch.unique_consecutive(ids, return_counts=True)[1]
        return F.pad((counts * unit).cumsum(0, dtype=torch.int32), (1, 0))

    def number(self, number: Callable[[Tensor, THW], Tensor]) -> Tensor:
        """Number all tokens by a function of one video's places, counting through all videos."""
        parts, start = [], 0
        for places, thw in zip(self.places, self.whole, strict=True):
            parts.append(number(places, thw) + start)
            start += thw[0] * thw[1] * thw[2]  # more than there are frames or windows
        return torch.cat(parts)

    def _windows(self, places: Tensor, thw: THW) -> Tensor:
        """Number the windows of one video in the order of its sequence; without any, its tokens."""
        if self.window is None:
            return places
        _, h, w = thw
        frame, row, column = places // (h * w), places // w % h, places % w
        down, across = -(-h // self.window), -(-w // self.window)
        return (frame * down + row // self.window) * across + column // self.window


GROUPS = "token_groups"  # named argument of blocks, and a name of attention in transformers


@dataclass(frozen=True)
class Groups:
    """Which tokens of a packed sequence attend to each other, for graphs that are traced.

    It goes in place of the bounds of sequences and says that there is one; `attend_in_groups`,
    called by the attention of transformers, then keeps the groups apart. A graph may break on the
    way: an attention that is not traced is told the sequences after all.
    """

    packed: Packed
    ids: Tensor  # (n,) equal within a frame, or within a window
    unit: int  # patches of a token
    is_whole: bool  # groups are whole frames

    def __getitem__(self, part: slice) -> "Groups":
        return self

    def __sub__(self, other: "Groups") -> "Groups":
        return self

    def tolist(self) -> list[int]:
        """Give the length of the one sequence."""
        if not torch.compiler.is_compiling():
            return self.packed.bounds(self.ids, self.unit).diff().tolist()
        return [self.unit * len(self.packed)]

    def attend(self, qkv: Sequence[Tensor], scale: float) -> Tensor:
        """Attend within groups: (1, heads, n, c) each; videos, then frames, go apart."""
        lengths = [self.unit * length for length in self.packed.lengths]
        ids = self.ids.repeat_interleave(self.unit).split(lengths)
        videos = zip(*(x[0].split(lengths, dim=1) for x in qkv), strict=True)
        found = []
        for video, own, (t, _, _) in zip(videos, ids, self.packed.thws, strict=True):
            frames = 1 if self.packed.is_loose else t
            q, k, v = (x.unflatten(1, (frames, -1)).transpose(0, 1) for x in video)
            mask = None  # (frames, 1, n, n)
            if self.packed.is_loose or not self.is_whole:
                own = own.unflatten(0, (frames, 1, -1))
                mask = own[..., None] == own[..., None, :]
            mixed = F.scaled_dot_product_attention(q, k, v, attn_mask=mask, scale=scale)
            found.append(mixed.transpose(0, 1).flatten(1, 2))
        return torch.cat(found, dim=1)[None]


def attend_in_groups(
    module: nn.Module, q: Tensor, k: Tensor, v: Tensor, attention_mask: None, **named: Any
) -> tuple[Tensor, None]:
    """Serve as an attention function of transformers; without groups, q, k, v are of one."""
    groups, scale = named.get(GROUPS), named["scaling"]
    if groups is None:
        return F.scaled_dot_product_attention(q, k, v, scale=scale).transpose(1, 2), None
    return groups.attend((q, k, v), scale).transpose(1, 2), None


class TracedAttention:
    """The configuration of an attention layer: its own, and `attend_in_groups` while traced."""

    def __init__(self, config: Any) -> None:
        self.__setstate__({"config": config})

    def __setstate__(self, state: dict[str, Any]) -> None:
        self.config = state["config"]
        # here, since a pickle may be opened in a process where nothing was inserted
        import_module("transformers").AttentionInterface.register(GROUPS, attend_in_groups)

    @property
    def _attn_implementation(self) -> str:
        return GROUPS if torch.compiler.is_compiling() else self.config._attn_implementation
