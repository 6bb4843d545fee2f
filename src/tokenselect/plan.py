"""Selection plans: where tokens are selected and how many stay, as text and as values.

`T0_0.6-S4_0.9` reads: keep 0.6 of the frames before block 0, then one region of 0.9 of each frame
before block 4. In a model of 12 blocks `T12_0.5` selects after the last one, before what follows:
a head, a merger, a language model. Exact counts are written `T0=5-S4=13x13`; the paper's own
writing (section 4.1), `MViT-B16-T^0_{0.4}-S^4_{0.6}`, is read too.
"""

from __future__ import annotations

import math
import re
from collections.abc import Iterable, Iterator
from copy import copy
from dataclasses import InitVar, dataclass
from typing import Any, cast

THW = tuple[int, int, int]

CHILD = "token_selectors"  # the module of a model that holds its selectors
SELECTORS = f"{CHILD}."  # how the names of their parameters begin

GRAMMAR = (
    "sites joined by '-', each T or S, a block and a ratio or a count: "
    "'T0_0.6-S4_0.9', 'T0=5-S4=13x13', or 'dense' for none"
)
BACKBONE_NAME = re.compile(r"^-?(?:(?:mvit|videoswin|swin)(?:-[bslt]\d*)?(?:-|$))?", re.IGNORECASE)
SITE = re.compile(
    r"(?P<kind>[TS])\^?\{?(?P<block>\d+)\}?"
    r"(?:_\{?(?P<ratio>-?[\d.]+)\}?|=(?P<count>\d+)(?:x(?P<columns>\d+))?)"
)


def count_of(length: int, ratio: float) -> int:
    """Turn a share of `length` into a count, at least 1: the one rule of the whole library."""
    return max(1, round(length * ratio))


@dataclass(frozen=True)
class Site:
    """One selection before block `block`: of frames (kind "T") or of regions (kind "S").

    Attributes:
        kind: "T" keeps frames of the clip, "S" one region of each frame.
        block: the selection runs before this block; the number of blocks, one more than the last
            of them, is the site after the last block.
        keep: a ratio in (0, 1] as a float; or exactly this many frames (an int, for "T"), or this
            many rows and columns (a pair, for "S").

    Args:
        count: an exact number in place of `keep`. One frame must be written so: 1 might mean all.
    """

    kind: str
    block: int
    keep: float | int | tuple[int, int] = cast(Any, None)
    count: InitVar[int | tuple[int, int] | None] = None

    def __post_init__(self, count: int | tuple[int, int] | None) -> None:
        if (self.keep is None) == (count is None):
            raise TypeError(f"a site takes keep or count, got {self.keep} and {count}")
        if isinstance(count, float):
            raise ValueError(f"count of site {self.label} must be a whole number, got {count:g}")
        if self.kind == "T" and isinstance(self.keep, int) and self.keep == 1:
            raise ValueError(
                f"keep of site {self.label} is 1, which may mean one frame or all of them: "
                "write count=1 for one, or 1.0 for all"
            )
        if count is not None:
            object.__setattr__(self, "keep", count)
        self._check()

    def _check(self) -> None:
        """Refuse what cannot be kept."""
        if self.kind not in ("T", "S"):
            raise ValueError(f"a site's kind must be 'T' or 'S', got {self.kind!r}")
        if self.block < 0:
            raise ValueError(f"a site's block must be 0 or more, got {self.block}")
        if isinstance(self.keep, float):
            if not 0 < self.keep <= 1:
                raise ValueError(f"ratio of site {self.label} must be in (0, 1], got {self.keep:g}")
        elif isinstance(self.keep, tuple) != (self.kind == "S"):
            allowed = "rows and columns, as in S4=13x13" if self.kind == "S" else "one count"
            raise ValueError(f"site {self.label} takes a ratio or {allowed}, got {self.keep}")
        elif min(self.keep if isinstance(self.keep, tuple) else (self.keep,)) < 1:
            raise ValueError(f"site {self.label} must keep at least 1, got {self.keep}")

    def at(self, block: int) -> Site:
        """Return the same site before another block."""
        site = copy(self)
        object.__setattr__(site, "block", block)
        return site

    @property
    def label(self) -> str:
        """Kind and block, for example "T0": unique within a plan."""
        return f"{self.kind}{self.block}"

    def frames_kept(self, t: int) -> int:
        """Count the frames that stay of `t`."""
        assert self.kind == "T" and not isinstance(self.keep, tuple)
        kept = count_of(t, self.keep) if isinstance(self.keep, float) else self.keep
        if kept > t:
            raise ValueError(f"site {self} asks for {kept} frames, but there are only {t}")
        return kept

    def region_side(self, h: int, w: int) -> tuple[int, int]:
        """Give the rows and columns of the region that stays of an h × w frame."""
        assert self.kind == "S" and not isinstance(self.keep, int)
        if isinstance(self.keep, float):
            return count_of(h, math.sqrt(self.keep)), count_of(w, math.sqrt(self.keep))
        rows, columns = self.keep
        if rows > h or columns > w:
            raise ValueError(f"site {self} asks for a {rows}×{columns} region of a {h}×{w} grid")
        return self.keep

    def kept_thw(self, thw: THW) -> THW:
        """Give the grid after this site's selection."""
        t, h, w = thw
        if self.kind == "T":
            return self.frames_kept(t), h, w
        return t, *self.region_side(h, w)

    def takes_all(self, thw: THW) -> bool:
        """Tell whether a count asks for all there is, or more."""
        if isinstance(self.keep, int):
            return self.keep >= thw[0]
        return isinstance(self.keep, tuple) and self.keep[0] >= thw[1] and self.keep[1] >= thw[2]

    def __str__(self) -> str:
        if isinstance(self.keep, float):
            return f"{self.label}_{self.keep:g}"
        count = "x".join(map(str, self.keep)) if isinstance(self.keep, tuple) else self.keep
        return f"{self.label}={count}"


@dataclass(frozen=True)
class SelectionPlan:
    """All sites of a model, ordered by block; at one block frames come before regions."""

    sites: tuple[Site, ...] = ()

    def __post_init__(self) -> None:
        ordered = sorted(self.sites, key=lambda site: (site.block, site.kind != "T"))
        labels = [site.label for site in ordered]
        twice = {label for label in labels if labels.count(label) > 1}
        if twice:
            raise ValueError(f"plan has site {', '.join(sorted(twice))} more than once")
        object.__setattr__(self, "sites", tuple(ordered))

    @classmethod
    def parse(cls, text: str) -> SelectionPlan:
        """Read a plan from text; `str(plan)` gives the canonical text back."""
        body = re.sub(r"\\text\{(\w)\}", r"\1", text.replace("$", "")).strip()
        if body in ("", "dense"):
            return cls()
        body = body[BACKBONE_NAME.match(body).end() :]  # type: ignore[union-attr]
        return cls(tuple(_parse_site(part, text) for part in body.split("-") if body))

    @classmethod
    def of(cls, plan: SelectionPlan | str | None) -> SelectionPlan:
        """Take a plan as it comes: a plan, its text, or None for a dense model."""
        return plan if isinstance(plan, cls) else cls.parse(str(plan or ""))

    def before(self, block: int) -> tuple[Site, ...]:
        """List the sites in front of one block, in the order they run."""
        return tuple(site for site in self.sites if site.block == block)

    def moved(self, blocks: Iterable[int]) -> SelectionPlan:
        """Read each site's number as a position in `blocks`: the first block of each stage, say."""
        starts = tuple(blocks)
        self.check_blocks(len(starts), unit="stage")
        return SelectionPlan(tuple(site.at(starts[site.block]) for site in self.sites))

    def check_blocks(self, num_blocks: int, *, unit: str = "block", has_end: bool = False) -> None:
        """Refuse a site beyond the last block; with `has_end`, one right after it is allowed."""
        end = f", and {num_blocks} is after the last" if has_end else ""
        for site in self.sites:
            if site.block >= num_blocks + has_end:
                raise ValueError(
                    f"site {site} is before {unit} {site.block}, but the model has "
                    f"{num_blocks} {unit}s (0 to {num_blocks - 1}{end})"
                )

    def __iter__(self) -> Iterator[Site]:
        return iter(self.sites)

    def __len__(self) -> int:
        return len(self.sites)

    def __str__(self) -> str:
        return "-".join(map(str, self.sites)) or "dense"


def _parse_site(part: str, text: str) -> Site:
    """Read one site; an error shows the site, the whole plan and the grammar."""
    match = SITE.fullmatch(part.strip())
    if match is None:
        raise ValueError(f"cannot read {part!r} in plan {text!r}; allowed: {GRAMMAR}")
    kind, block, ratio = match["kind"], int(match["block"]), match["ratio"]
    if ratio is not None:
        if ratio.count(".") > 1 or not ratio.strip("-."):
            raise ValueError(f"cannot read {part!r} in plan {text!r}: {ratio!r} is no ratio")
        return Site(kind, block, float(ratio))
    count, columns = int(match["count"]), match["columns"]
    if kind == "S":
        return Site(kind, block, (count, int(columns or count)))
    if columns is not None:
        raise ValueError(f"site {part!r} in plan {text!r}: frames take one count, as in T0=5")
    return Site(kind, block, count=count)
