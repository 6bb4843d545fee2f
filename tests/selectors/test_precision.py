"""Scores are computed in float32, under autocast too."""

import pytest
import torch

from tokenselect.grid import TokenGrid
from tokenselect.plan import Site
from tokenselect.selectors import METHODS, build_selector
from tokenselect.selectors.build import SCORERS, has_scorer

B, T, H, W, C = 2, 5, 7, 6, 8
SITES = {"T": Site("T", 1, 3), "S": Site("S", 1, (4, 3))}
UNFIT = {  # draws anew at each call; records how tokens merged, not scores
    ("random", "T"), ("random", "S"), ("merge", "T"), ("merge", "S"), ("gumbel", "S"),
}  # fmt: skip


def cases() -> list[tuple[str, str, str]]:
    return [
        (kind, method, scorer)
        for kind in SITES
        for method in METHODS
        for scorer in (SCORERS if has_scorer(method) else ("paper",))
        if (method, kind) not in UNFIT
    ]


def record_scores(kind: str, method: str, scorer: str) -> list[torch.Tensor]:
    """Return the scores of one grid in float32, without and with autocast to bfloat16."""
    torch.manual_seed(0)
    selector = build_selector(
        SITES[kind], channels=C, method=method, scorer=scorer, thw=(T, H, W), is_sequence=True
    )
    for parameter in selector.parameters():
        torch.nn.init.normal_(parameter)
    seen = {"class_attention": torch.rand(B, T, H, W), "prompt": torch.randn(B, 4, C)}
    grid = TokenGrid(torch.randn(B, T * H * W, C), (T, H, W), **seen)
    scores: list[torch.Tensor] = []
    selector.recorders.append(lambda selection: scores.append(selection.scores))
    for is_low in (False, True):
        with torch.autocast("cpu", torch.bfloat16, enabled=is_low):
            selector.eval()(grid)
    return scores


@pytest.mark.parametrize(("kind", "method", "scorer"), cases())
def test_autocast_leaves_scores_as_they_are(kind, method, scorer):
    exact, scores = record_scores(kind, method, scorer)
    assert scores.dtype == torch.float32
    torch.testing.assert_close(scores, exact)
