"""Models of other libraries on the disk, with plan, settings and selectors.

transformers writes all of it itself: the selectors' weights with the model's, the plan with the
configuration, where `insert_selectors` puts it. So `save_pretrained`, `push_to_hub` and checkpoints
of `Trainer` hold it. Models of other libraries are written by `save_model`, as weights and plan.
"""

import json
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any, cast

from safetensors import SafetensorError
from safetensors.torch import load_file, save_file
from torch import Tensor, nn

from tokenselect.adapters import Adapter
from tokenselect.adapters.huggingface import is_pretrained
from tokenselect.checkpoints.model import Plan, fill_selectors, read_settings
from tokenselect.extras import require
from tokenselect.insertion import insert_selectors, selectors_of
from tokenselect.locking import writing
from tokenselect.plan import CHILD, SELECTORS
from tokenselect.weights import find_checkpoint, load_weights, read_metadata
from tokenselect.weights.files import WEIGHTS, blaming_source
from tokenselect.weights.load import check_finite
from tokenselect.weights.public import fetch_repository, is_repository

CONFIG = "config.json"
HOST = "host"  # key of a file's metadata


def load_selectors(
    model: nn.Module,
    source: str | Path,
    *,
    plan: Plan = None,
    method: str | None = None,
    adapter: type[Adapter] | None = None,
) -> nn.Module:
    """Insert the selectors that were saved with a model of another library; the rest stays.

    This is for models that their own library loaded, such as
    `AutoModelForVideoClassification.from_pretrained(source)`.

    Args:
        model: dense; it is changed in place and given back.
        source: a folder of `save_pretrained` or of `save_model`, a checkpoint of `Trainer`, or a
            repository of the Hugging Face Hub.
        plan: in place of the saved one; "dense" for none.
        method: of selection, in place of the saved one.
        adapter: the one that the selectors were inserted with, if it was your own.
    """
    files = find_files(source)
    described = read_description(files)
    with blaming_source(source):
        selection = read_settings(described.get("selection") or described.get(CHILD) or {})
    if not selection:
        raise ValueError(f"{source} holds no plan: its model was saved without selectors")
    with blaming_source(source):
        saved = selection.pop("plan")
        if method is not None:
            selection["method"] = method
        state = read_tensors(files)
        check_finite(state, str(source))
        trained = {n: t for n, t in state.items() if n.startswith(SELECTORS)}
        insert_selectors(model, saved if plan is None else plan, adapter=adapter, **selection)
        if selectors_of(model) is not None:
            fill_selectors(model, trained)
    return model


def load_host(
    source: str | Path, host: nn.Module | None, *, plan: Plan = None, method: str | None = None
) -> nn.Module | None:
    """Load a model of another library; None if the source holds one of ours."""
    try:
        files = find_files(source)
    except FileNotFoundError:
        return None
    described = read_description(files)
    if host is None and "architectures" not in described:
        if HOST not in described:
            return None
        raise ValueError(
            f"{source} holds a {described[HOST]}, which only its own library can build: build "
            "the same dense model there and pass it as host=…"
        )
    if host is None:
        library: Any = require("transformers", extra="huggingface", purpose="this model")
        with blaming_source(source):
            kind = getattr(library, described["architectures"][0])
            host, found = kind.from_pretrained(files[0].parent, output_loading_info=True)
            if missing := sorted(found["missing_keys"]):
                raise ValueError(f"{len(missing)} weights are missing, such as {missing[0]}")
            check_finite(cast(nn.Module, host).state_dict(), str(source))
    else:
        with blaming_source(source):
            state = read_tensors(files)
            load_weights(host, {n: t for n, t in state.items() if not n.startswith(SELECTORS)})
    has_selectors = bool(described.get("selection") or described.get(CHILD))
    return load_selectors(host, source, plan=plan, method=method) if has_selectors else host


def save_host(model: nn.Module, path: Path, *, metadata: Mapping[str, Any] | None) -> Path:
    """Write a model of another library: by its own `save_pretrained`, or as weights and plan."""
    if is_pretrained(model):
        if path.suffix == ".safetensors" or metadata:
            raise ValueError(
                f"transformers saves a {type(model).__name__} to a folder, without other "
                f"metadata; got {path} and metadata {metadata}"
            )
        cast(Any, model).save_pretrained(path)
        return path / WEIGHTS
    selectors, cls = selectors_of(model), type(model)
    described: dict[str, Any] = {**(metadata or {}), HOST: f"{cls.__module__}.{cls.__qualname__}"}
    if selectors is not None:
        described["selection"] = {"plan": str(selectors.whole_plan), **selectors.settings}
    return write_tensors(model, path, described)


def write_tensors(model: nn.Module, path: Path, metadata: Mapping[str, Any]) -> Path:
    """Write a model's weights and JSON metadata to a file, whole or not at all."""
    file = path if path.suffix == ".safetensors" else path / WEIGHTS
    file.parent.mkdir(parents=True, exist_ok=True)
    text = {name: json.dumps(value) for name, value in metadata.items()}
    tensors = {n: value.detach().cpu().contiguous() for n, value in model.state_dict().items()}
    with writing(file) as unfinished:
        try:
            save_file(tensors, unfinished, metadata=text)
        except SafetensorError as error:
            raise OSError(str(error)) from error
    return file


def find_files(source: str | Path) -> list[Path]:
    """Find the files of weights of a source, downloaded if need be; large models have several."""
    if is_repository(source):
        fetch_repository(str(source), CONFIG)
    shards = sorted(Path(source).expanduser().glob("model-*-of-*.safetensors"))
    return shards or [find_checkpoint(source)]


def read_description(files: Sequence[Path]) -> dict[str, Any]:
    """Read the configuration of transformers beside the files, or what `save_model` wrote."""
    config = files[0].with_name(CONFIG)
    if not (files[0].stem.startswith("model") and config.is_file()):
        return read_metadata(files[0])
    try:
        return dict(json.loads(config.read_text()))
    except (TypeError, ValueError) as error:
        raise ValueError(f"{config} is not a model configuration: {error}") from error


def read_tensors(files: Sequence[Path]) -> dict[str, Tensor]:
    """Read all tensors of several files."""
    return {name: tensor for file in files for name, tensor in load_file(file).items()}
