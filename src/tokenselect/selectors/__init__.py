"""Selectors map a `TokenGrid` to a smaller one; they know nothing of the model around them.

A selector (`FrameSelector`, `RegionSelector`, `TokenSelector`) asks a `Scoring` how much each
candidate matters, keeps the best, and while training blends them through a relaxation instead.
"""

from tokenselect.selectors.build import METHODS, build_selector
from tokenselect.selectors.selector import (
    FrameSelector,
    RegionSelector,
    Selection,
    Selector,
    TokenSelector,
)

__all__ = [
    "METHODS", "FrameSelector", "RegionSelector", "Selection", "Selector", "TokenSelector",
    "build_selector",
]  # fmt: skip
