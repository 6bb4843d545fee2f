"""Recorded accuracies, and what they lead one to expect of plans that nobody has trained yet."""

from __future__ import annotations

import json
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import torch
from torch import Tensor

from tokenselect.plan import SelectionPlan

FEWEST = 3  # results from which others are estimated


@dataclass(frozen=True)
class Results:
    """Top-1 accuracy in per cent by plan, and where it comes from."""

    source: str
    top1: Mapping[str, float]


# Tables 1, 2, 4 and 5 of the paper for MViT-B16, Tables 2 and 3 for Video Swin-B.
PAPER = {
    "mvit_b16": Results(
        "the paper, Kinetics-400",
        {
            "dense": 78.4,
            "T0_0.9-S4_0.9": 78.1,
            "T0_0.8-S4_0.9": 77.9,
            "T0_0.6-S4_0.9": 77.5,
            "T0_0.6": 77.5,
            "T0_0.5": 77.3,
            "T4_0.3": 77.3,
            "S0_0.6": 76.2,
            "S0_0.5": 76.2,
            "S4_0.3": 76.8,
            "T0_0.8-S0_0.7": 76.4,
            "T0_0.9-S0_0.9-T4_0.7-S4_0.7": 76.4,
            "T4_0.6-S4_0.7-T8_0.4-S8_0.7": 76.5,
            "T0_0.9-S0_0.9-T4_0.9-S4_0.9-T8_0.7-S8_0.8": 76.6,
        },
    ),
    "video_swin_b": Results(
        "the paper, Kinetics-400", {"dense": 82.7, "T0_0.8": 81.9, "T0_0.6": 81.4}
    ),
    "video_swin_b_w16": Results(
        "the paper, Something-Something V2", {"dense": 69.6, "T0_0.7": 68.7, "T0_0.6": 68.1}
    ),
}


def find_results(model: str, paths: Sequence[str | Path] = ()) -> Results | None:
    """Find recorded results of a model: in files if any are given, else the paper's.

    Args:
        model: its name.
        paths: JSON files of `tokenselect evaluate --output`, or folders of them.
    """
    if not paths:
        return PAPER.get(model)
    found = {
        str(SelectionPlan.of(record["plan"])): 100 * float(record["top1"])
        for path in paths
        for record in _records(Path(path))
        if record.get("model") == model
    }
    if not found:
        names = ", ".join(str(path) for path in paths)
        raise ValueError(f"no result of {model} in {names}")
    return Results(", ".join(str(path) for path in paths), found)


def _records(path: Path) -> Iterator[Mapping[str, Any]]:
    """Read results from a file, one or a list of them, or from all files of a folder."""
    files = sorted(path.glob("*.json")) if path.is_dir() else [path]
    for file in files:
        try:
            content = json.loads(file.read_text(encoding="utf-8"))
        except json.JSONDecodeError as error:
            raise ValueError(f"{file} is no JSON: {error}") from error
        for record in content if isinstance(content, list) else [content]:
            if isinstance(record, Mapping) and {"model", "plan", "top1"} <= record.keys():
                yield record


def fit_accuracy(features: Tensor, top1: Tensor) -> Tensor:
    """Fit top-1 by a line in features; a weak pull to 0 keeps few results from running wild.

    Args:
        features: (r, f), zeros for a dense model.
        top1: (r,) per cent.

    Returns:
        (f + 1,) the accuracy of a dense model, then the change by each feature.
    """
    columns = torch.cat([torch.ones(len(features), 1), features], dim=1).double()
    pull = torch.diag(torch.tensor([0.0] + [1e-3] * features.shape[1], dtype=torch.float64))
    return torch.linalg.solve(columns.T @ columns + pull, columns.T @ top1.double()).float()
