"""Sharing models on the Hugging Face Hub: `save_pretrained` and `push_to_hub`.

`load_model("user/name")` is the way back.
"""

import json
import tempfile
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from torch import nn

from tokenselect.checkpoints.files import save_model
from tokenselect.checkpoints.model import describe_model, info_of, plan_of, with_plan
from tokenselect.locking import write_whole
from tokenselect.measure.cost import count_macs
from tokenselect.weights import read_metadata

TAGS = ("video-classification", "token-selection", "efficient-inference")
INTRODUCTION = (
    "A video transformer that scores its tokens with tiny networks and keeps only the frames, and "
    "the region in each, that matter; made with [tokenselect](https://pypi.org/project/tokenselect/)"
    " after [Efficient Video Transformers with Spatial-Temporal Token "
    "Selection](https://arxiv.org/abs/2111.11591)."
)
USAGE = """```python
import tokenselect

model = tokenselect.load_model("{repo}")
logits = model(clips)  # {shape} float32, normalised colours
```"""


def save_pretrained(
    model: nn.Module,
    folder: str | Path,
    *,
    class_names: Sequence[str] = (),
    metadata: Mapping[str, Any] | None = None,
    license: str | None = None,
    repo: str = "USER/MODEL",
) -> Path:
    """Write a folder to share, and give it: weights, `config.json` and a model card.

    Args:
        model: of ours, with whatever selectors it has now.
        folder: that `load_model` opens afterwards.
        class_names: of its outputs, in order; those of a loaded model stay if none are given.
        metadata: anything else to keep, as JSON: `{"results": {"Kinetics-400 top-1": 0.775}}`.
        license: of the weights, as the Hub spells it: "mit", "cc-by-4.0".
        repo: where the card says that the model can be loaded from.
    """
    folder = Path(folder)
    if getattr(model, "settings", None) is None:  # its library writes configuration and card
        return save_model(model, folder, metadata=metadata).parent
    if license is not None:
        metadata = {**(metadata or {}), "license": license}
    kept = read_metadata(save_model(model, folder, class_names=class_names, metadata=metadata))
    config = {"model": kept["model"], "id2label": dict(enumerate(kept["class_names"]))}
    config["label2id"] = {name: number for number, name in config["id2label"].items()}
    write_whole(folder / "config.json", json.dumps(config, indent=2, ensure_ascii=False))
    write_whole(folder / "README.md", write_card(model, kept, repo=repo))
    return folder


def push_to_hub(
    model: nn.Module,
    repo_id: str,
    *,
    class_names: Sequence[str] = (),
    metadata: Mapping[str, Any] | None = None,
    license: str | None = None,
    private: bool | None = None,
    token: str | None = None,
    commit_message: str = "Upload model with tokenselect",
) -> str:
    """Upload what `save_pretrained` writes, with the same settings; give the upload's address.

    Args:
        model: of ours; those of transformers have a `push_to_hub` of their own.
        repo_id: "user/name", made if need be; `load_model` takes the same.
        private: whether a new repository is; None for the account's own setting.
        token: of the account; None for the one this machine is logged in with.
    """
    from huggingface_hub import HfApi

    api = HfApi(token=token)
    repo = api.create_repo(repo_id, private=private, exist_ok=True).repo_id
    with tempfile.TemporaryDirectory() as folder:
        save_pretrained(
            model, folder, class_names=class_names, metadata=metadata, license=license, repo=repo
        )
        pushed = api.upload_folder(repo_id=repo, folder_path=folder, commit_message=commit_message)
    return str(pushed)


def write_card(model: nn.Module, metadata: Mapping[str, Any], *, repo: str) -> str:
    """Write the card: YAML for the Hub, then text for readers."""
    described, plan, shape = describe_model(model), plan_of(model), info_of(model).clip_rule.shape
    selection = described.get("selection", {})
    gmacs = [count_macs(m, *shape).gmacs for m in (model, with_plan(model, "dense"))]
    _, channels, frames, height, width = shape
    rows = {
        "backbone": described["name"],
        "plan": str(plan),
        "method": ", ".join(str(selection[k]) for k in ("method", "scorer") if k in selection),
        "input": f"{frames} frames of {height} × {width}",
        "classes": described["num_classes"],
        "parameters": f"{sum(p.numel() for p in model.parameters()):,}",
        "GMACs per view": f"{gmacs[0]:.2f} (dense: {gmacs[1]:.2f})",
    }
    license, results = metadata.get("license"), dict(metadata.get("results", {}))
    if not results and "best_top1" in metadata:  # of a checkpoint
        results = {"best top-1 in validation": f"{metadata['best_top1']:.2%}"}
    header = ["---", "library_name: tokenselect", "pipeline_tag: video-classification"]
    header += [f"license: {license}"] if license else []
    parts = [
        "\n".join([*header, "tags:", *(f"- {tag}" for tag in TAGS), "---"]),
        f"# {described['name']}, {plan}",
        INTRODUCTION,
        _table("", "", {k: v for k, v in rows.items() if v != ""}),
        _table("result", "value", results) if results else "",
        USAGE.format(repo=repo, shape=f"(b, {channels}, {frames}, {height}, {width})"),
        f"License of the weights: {license}." if license else "",
    ]
    return "\n\n".join(part for part in parts if part) + "\n"


def _table(left: str, right: str, rows: Mapping[str, Any]) -> str:
    lines = [f"| {left} | {right} |", "| --- | --- |"]
    return "\n".join(lines + [f"| {name} | {value} |" for name, value in rows.items()])
