"""The model card: what a saved model is, costs and can, for people who find it on the Hub."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, cast

from torch import nn

from tokenselect.insertion import selectors_of
from tokenselect.pretrained.saved import SavedModel, build_described, describe_model
from tokenselect.profiling import count_macs

TAGS = ("video-classification", "token-selection", "efficient-inference")
USAGE = """```python
from tokenselect.pretrained.hub import PretrainedModel

model = PretrainedModel.from_pretrained("{repo}")
logits = model(clips)  # {shape} float32, normalised colours
```"""


def write_card(saved: SavedModel, *, repo: str, licence: str) -> str:
    """Write the card: YAML for the Hub, then text for readers.

    Args:
        saved: the model with its class names and what is known of it.
        repo: where it can be loaded from.
        licence: of the weights, as the Hub spells it.
    """
    described = describe_model(saved.model)
    frames, (height, width) = described["frames"], described["size"]
    costs = gmacs_of(saved.model)
    selection = described.get("selection", {})
    rows = {
        "backbone": described["name"],
        "plan": str(saved.plan),
        "method": ", ".join(str(selection[k]) for k in ("method", "scorer") if k in selection),
        "input": f"{frames} frames of {height} × {width}",
        "classes": described["num_classes"],
        "parameters": f"{sum(p.numel() for p in saved.model.parameters()):,}",
        "GMACs a view": f"{costs['selected']:.2f} (dense: {costs['dense']:.2f})",
    }
    usage = USAGE.format(repo=repo, shape=f"(b, 3, {frames}, {height}, {width})")
    parts = [
        _header(licence),
        f"# {described['name']}, {saved.plan}",
        "A video transformer that scores its tokens with tiny networks and keeps only the frames, "
        "and the region in each, that matter; made with "
        "[tokenselect](https://pypi.org/project/tokenselect/) after "
        "[Efficient Video Transformers with Spatial-Temporal Token "
        "Selection](https://arxiv.org/abs/2111.11591).",
        _table("", "", {k: v for k, v in rows.items() if v != ""}),
        _results(saved.metadata),
        usage,
        f"Licence of the weights: {licence}.",
    ]
    return "\n\n".join(part for part in parts if part) + "\n"


def gmacs_of(model: nn.Module) -> dict[str, float]:
    """Count 10⁹ multiply-adds of a view, with the model's selectors and without any."""
    shape = (1, 3, *cast(tuple[int, int, int], model.default_input))
    selected = count_macs(model, *shape).gmacs
    if selectors_of(model) is None:
        return {"selected": selected, "dense": selected}
    dense = build_described(describe_model(model), plan="dense")
    return {"selected": selected, "dense": count_macs(dense, *shape).gmacs}


def _header(licence: str) -> str:
    tags = "\n".join(f"- {tag}" for tag in TAGS)
    return (
        f"---\nlibrary_name: tokenselect\npipeline_tag: video-classification\n"
        f"license: {licence}\ntags:\n{tags}\n---"
    )


def _results(metadata: Mapping[str, Any]) -> str:
    """Show the results that came with the model; those of a checkpoint are its validation's."""
    results = dict(metadata.get("results", {}))
    if not results and "best_top1" in metadata:
        results = {"best top-1 in validation": f"{metadata['best_top1']:.2%}"}
    return _table("result", "value", results) if results else ""


def _table(left: str, right: str, rows: Mapping[str, Any]) -> str:
    lines = [f"| {left} | {right} |", "| --- | --- |"]
    return "\n".join(lines + [f"| {name} | {value} |" for name, value in rows.items()])
