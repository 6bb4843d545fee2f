"""The selectors in the checkpoints that the paper's authors released."""

import re
from collections.abc import Mapping, Sequence

from torch import Tensor

SCORER = re.compile(r"(time|space)_score_predictor\.(\d+)\.score_network\.(in_conv|out_conv)\.(.*)")
KINDS = {"time": "T", "space": "S"}
PARTS = {"in_conv": "embed", "out_conv": "score"}


def rename_scorers(state: Mapping[str, Tensor], *, sites: Sequence[str]) -> dict[str, Tensor]:
    """Move the authors' scorers to the model's sites.

    Their names count the frame sites and the region sites from 0 and do not say before which block
    they are: the first goes to the model's first site of that kind, and so on.

    Args:
        state: with or without such scorers.
        sites: labels of the model's sites in order, "T0", "S4".
    """
    renamed = {}
    for name, weight in state.items():
        match = SCORER.fullmatch(name)
        if match is not None:
            kind, index, part, rest = match.groups()
            labels = [label for label in sites if label.startswith(KINDS[kind])]
            if int(index) < len(labels):
                label = labels[int(index)]
                name = f"token_selectors.{label}.scoring.network.{PARTS[part]}.{rest}"
        renamed[name] = weight
    return renamed


def is_scorer(name: str) -> bool:
    """Tell whether a name is of a scorer that found no site."""
    return SCORER.fullmatch(name) is not None
