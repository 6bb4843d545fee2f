"""Which tokens are left at the end, told to the caller: a mask and indices of the first grid."""

from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from functools import partial

import torch
from torch import Tensor, nn

from tokenselect.grid import TokenGrid
from tokenselect.insertion.insert import inserted_selectors
from tokenselect.insertion.record import listening
from tokenselect.plan import THW


@dataclass(frozen=True)
class KeptTokens:
    """What all sites together left of a grid.

    Attributes:
        indices: (b, k) the patches that are left, in their order. A merged patch, or one blended
            while training, counts as the one whose place it took.
        thw: the grid before the first site, which `indices` count in.
    """

    indices: Tensor
    thw: THW

    @property
    def mask(self) -> Tensor:
        """(b, t, h, w) true where a patch is left."""
        t, h, w = self.thw
        mask = self.indices.new_zeros(len(self.indices), t * h * w, dtype=torch.bool)
        return mask.scatter(1, self.indices, True).unflatten(1, self.thw)


@contextmanager
def record_kept(model: nn.Module) -> Iterator[list[KeptTokens]]:
    """Watch which tokens are left at the end, for callers that must keep something else in step.

    Only forwards of the thread, or task, that opened the block are followed.

    Yields:
        After each forward, one `KeptTokens` for the batch; for models that pack videos of
        different sizes into one sequence, one per video.
    """
    kept: list[KeptTokens] = []
    hooks = list(inserted_selectors(model).site_hooks)
    with listening(partial(_note, kept)) as hear:
        notes = [partial(hear, index == 0) for index in range(len(hooks))]
        for hook, note in zip(hooks, notes, strict=True):
            hook.notes.append(note)
        try:
            yield kept
        finally:
            for hook, note in zip(hooks, notes, strict=True):
                hook.notes.remove(note)


def _note(
    kept: list[KeptTokens],
    is_first: bool,
    before: Sequence[TokenGrid],
    after: Sequence[TokenGrid],
) -> None:
    """Follow the patches from the site before, or take their positions where they carry them."""
    if is_first:
        kept[:] = [
            KeptTokens(_places(new), old.thw) for old, new in zip(before, after, strict=True)
        ]
        return
    for index, (old, new) in enumerate(zip(before, after, strict=True)):
        places, known = _places(new), kept[index]
        if old.positions is None:
            t, h, w = old.thw
            if known.indices.shape[1] != t * h * w:
                raise ValueError(
                    "record_kept follows tokens from site to site, but this model's blocks change "
                    f"the grid between them: {known.indices.shape[1]} patches became {t * h * w}"
                )
            places = known.indices.gather(1, places)
        kept[index] = KeptTokens(places, known.thw)


def _places(grid: TokenGrid) -> Tensor:
    assert grid.positions is not None
    return grid.positions.detach()
