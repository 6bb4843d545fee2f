"""Sharing models on the Hugging Face Hub: `save_pretrained`, `from_pretrained`, `push_to_hub`."""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any, cast

from huggingface_hub import ModelCard, PyTorchModelHubMixin, hf_hub_download
from torch import Tensor, nn

from tokenselect.checkpoints.model import (
    SavedModel,
    build_described,
    describe_model,
    load_model,
    save_model,
)
from tokenselect.insertion import selectors_of
from tokenselect.measure.cost import count_macs
from tokenselect.plan import SelectionPlan
from tokenselect.weights.files import WEIGHTS

TAGS = ("video-classification", "token-selection", "efficient-inference")
USAGE = """```python
from tokenselect.checkpoints.hub import PretrainedModel

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


class PretrainedModel(
    nn.Module,
    PyTorchModelHubMixin,
    library_name="tokenselect",
    pipeline_tag="video-classification",
    tags=list(TAGS),
):
    """A model with its class names and results, as it is shared.

    It is saved as `save_model` does, so `load_model` opens the same folder.

    Args:
        model: of `create_model`, with whatever selectors it has.
        class_names: of its outputs, in order.
        metadata: anything else to keep, as JSON: `{"results": {"Kinetics-400 top-1": 0.775}}`.
        licence: of the weights, as the Hub spells it.
    """

    def __init__(
        self,
        model: nn.Module,
        *,
        class_names: Sequence[str] = (),
        metadata: Mapping[str, Any] | None = None,
        licence: str = "mit",
    ) -> None:
        super().__init__()
        self.model = model
        self.class_names = tuple(class_names)
        self.metadata = dict(metadata or {})
        self.licence = licence

    @property
    def plan(self) -> SelectionPlan:
        """What the model selects."""
        return SavedModel(self.model).plan

    def forward(self, video: Tensor) -> Tensor:
        """Map (b, 3, frames, height, width) clips to (b, num_classes) logits."""
        return self.model(video)

    def generate_model_card(self, repo: str = "USER/MODEL") -> ModelCard:
        """Write the card that `save_pretrained` puts beside the weights."""
        saved = SavedModel(self.model, self.class_names, self.metadata)
        return ModelCard(write_card(saved, repo=repo, licence=self.licence))

    def push_to_hub(self, repo_id: str, **options: Any) -> str:
        """Upload weights and card to a repository; `options` are huggingface_hub's own."""
        options.setdefault("model_card_kwargs", {"repo": repo_id})
        return super().push_to_hub(repo_id, **options)

    def _save_pretrained(self, save_directory: Path) -> None:
        metadata = {**self.metadata, "licence": self.licence}
        save_model(self.model, save_directory, class_names=self.class_names, metadata=metadata)
        config = {"model": describe_model(self.model), "class_names": list(self.class_names)}
        (save_directory / "config.json").write_text(json.dumps(config, indent=2))

    @classmethod
    def _from_pretrained(
        cls,
        *,
        model_id: str,
        revision: str | None,
        cache_dir: str | Path | None,
        force_download: bool,
        local_files_only: bool,
        token: str | bool | None,
        map_location: str = "cpu",
        strict: bool = True,
        **options: Any,
    ) -> PretrainedModel:
        """Find the weights in a folder or on the Hub; `options` come from config.json, unused."""
        path = Path(model_id)
        if not path.is_dir():
            path = Path(
                hf_hub_download(
                    model_id,
                    WEIGHTS,
                    revision=revision,
                    cache_dir=cache_dir,
                    force_download=force_download,
                    local_files_only=local_files_only,
                    token=token,
                )
            )
        saved = load_model(path)
        licence = str(saved.metadata.get("licence", "mit"))
        kept = {
            name: value
            for name, value in saved.metadata.items()
            if name not in ("model", "class_names", "licence")
        }
        model = saved.model.to(map_location)
        return cls(model, class_names=saved.class_names, metadata=kept, licence=licence).eval()
