"""Models on the disk: one loader for every source, one function that writes.

Of models of other libraries, transformers writes all itself: the selectors' weights with the
model's, the plan with the configuration, where `insert_selectors` puts it. So `save_pretrained`,
`push_to_hub` and checkpoints of `Trainer` hold it. `save_model` writes the others, as weights and
plan.
"""

import json
from collections.abc import Mapping, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any, cast

import torch
from safetensors import SafetensorError
from safetensors.torch import load_file, save_file
from torch import Tensor, nn

from tokenselect.adapters import Adapter, is_supported
from tokenselect.adapters.huggingface import is_pretrained
from tokenselect.checkpoints.model import (
    ModelInfo,
    Plan,
    Sides,
    describe_model,
    fill_selectors,
    info_of,
    number_classes,
    own_selectors,
    rule_of,
    select,
    settings_of,
)
from tokenselect.data.labels import read_class_names
from tokenselect.extras import require
from tokenselect.insertion import insert_selectors, selectors_of
from tokenselect.locking import writing
from tokenselect.models import create_model, find_weights, list_models
from tokenselect.plan import CHILD, SELECTORS
from tokenselect.selectors.build import DEFAULT_SCORER
from tokenselect.weights import load_weights, public_weights, read_metadata, read_weights
from tokenselect.weights.files import WEIGHTS, blaming_source, find_checkpoint
from tokenselect.weights.load import check_finite, convert, is_scorer
from tokenselect.weights.public import fetch_repository, is_repository

EMBEDDED = Path(__file__).parents[1] / "assets" / "synthetic_mvit_mini.safetensors"
KINETICS400 = EMBEDDED.with_name("kinetics400.txt")
CONFIG = "config.json"
HOST = "host"  # key of a file's metadata


def load_model(
    source: str | Path | None = None,
    *,
    plan: Plan = None,
    method: str | None = None,
    weights: str | Path | None = None,
    class_names: str | Path | Sequence[str] | None = None,
    size: Sides | None = None,
    device: str | torch.device = "cpu",
    host: nn.Module | None = None,
) -> nn.Module:
    """Load a model in evaluation mode; `model.info` holds all that belongs to one of ours.

    Args:
        source: a run's folder (its best is taken), a checkpoint's folder, a file that
            `save_model` wrote, a repository of the Hugging Face Hub ("user/name"), or a name of
            `list_models()`; None for the small trained model in the package. What is on the disk
            comes before names.
        plan: in place of the saved one; a trained selector serves whatever its site keeps. "dense"
            removes all. None for a checkpoint's own, and for a named model that of its weights.
        method: of selection, in place of the saved one.
        weights: of a named model: public ones by name, or a file of any known layout; None for
            random ones.
        class_names: the names in order, or a file of them: one per line, or JSON.
        size: side, or height and width, of the frames, if not the model's own; tables of positions
            are resized.
        host: for a model of another library that `save_model` wrote: a dense one, built as it was.
            A folder of transformers' `save_pretrained` needs none.
    """
    if source is None and weights is not None:
        raise ValueError(f"weights {str(weights)!r} need the name of their model")
    place = EMBEDDED if source is None else source
    if place in list_models() and (weights is not None or not Path(place).exists()):
        model = _load_named(str(place), weights, plan=plan, method=method, size=size)
    elif weights is not None:
        raise ValueError(
            f"weights are for a model by name, got weights {str(weights)!r} and {str(place)!r}"
        )
    elif (foreign := load_host(place, host, plan=plan, method=method)) is not None:
        if class_names is not None or size is not None:
            raise ValueError("class_names and size are for models of create_model")
        return foreign.eval().to(torch.device(device))
    else:
        model = _load_checkpoint(place, plan=plan, method=method, size=size)
    if class_names is not None:
        info, is_file = info_of(model), isinstance(class_names, str | Path)
        names = read_class_names(class_names) if is_file else list(class_names)  # type: ignore[arg-type]
        if len(names) != len(info.id2label):
            title, count = class_names if is_file else "class_names", len(info.id2label)
            raise ValueError(f"{title} has {len(names)} class names, the model {count} classes")
        model.info = replace(info, id2label=dict(enumerate(names)))  # type: ignore[assignment]
    return model.eval().to(torch.device(device))


def _load_checkpoint(
    source: str | Path, *, plan: Plan, method: str | None, size: Sides | None
) -> nn.Module:
    """Build the model of a checkpoint from what its file says about it."""
    if isinstance(source, str) and source.isidentifier() and not Path(source).exists():
        raise FileNotFoundError(
            f"no checkpoint at {source}, and no model has that name: there are "
            f"{', '.join(list_models())}"
        )
    weights, metadata = read_weights(source)
    described = metadata.pop("model", None)
    if not isinstance(described, Mapping):
        raise ValueError(
            f"{source} has weights but does not say which model they are for: load_model(NAME, "
            f"weights={str(source)!r}), or --model NAME --weights {source}"
        )
    with blaming_source(source):
        model, info = _build_described(str(source), weights, metadata, described, method, size)
        return select(model, described.get("plan") if plan is None else plan, info)


def _build_described(
    source: str,
    weights: Mapping[str, Tensor],
    metadata: dict[str, Any],
    described: Mapping[str, Any],
    method: str | None,
    size: Sides | None,
) -> tuple[nn.Module, ModelInfo]:
    """Build the dense model that a file describes, fill it, and say what belongs to it."""
    count, names = described["num_classes"], metadata.pop("class_names", None) or []
    if not isinstance(names, list) or not all(isinstance(name, str) for name in names):
        raise ValueError(f"{source} has class names that are not text: {str(names)[:80]}")
    if names and len(names) != count:
        raise ValueError(f"{source} has {len(names)} class names for {count} classes")
    if "licence" in metadata:  # as 0.1 wrote it
        metadata["license"] = metadata.pop("licence")
    selection = read_settings(described.get("selection", {}))
    built: dict[str, Any] = {
        name: tuple(value) if isinstance(value, list) else value
        for name, value in described.items()
        if name not in ("plan", "selection")
    }
    model = create_model(**built | ({} if size is None else {"size": size}))
    trained = {key: value for key, value in weights.items() if key.startswith(SELECTORS)}
    check_finite(trained, source)
    backbone = {key: value for key, value in weights.items() if key not in trained}
    if load_weights(model, backbone, title=source).initial:
        raise ValueError(f"{source} names {count} classes but has no classifier for them")
    id2label = dict(enumerate(names)) if names else number_classes(count)
    rule = rule_of(settings_of(model), metadata.get("recipe"))
    selection = {"method": "stts", **selection, **({"method": method} if method else {})}
    return model, ModelInfo(
        described["name"], id2label, rule, metadata, selection=selection, trained=trained
    )


def _load_named(
    name: str, weights: str | Path | None, *, plan: Plan, method: str | None, size: Sides | None
) -> nn.Module:
    """Build a named model with weights of any layout, or with random ones, always the same."""
    if weights is None:
        with torch.random.fork_rng(devices=[]):
            torch.manual_seed(0)
            model = create_model(name, size=size)
        note = f"{name} has random weights: its labels mean nothing, its costs are right"
        selection = {"method": method or "stts"}
        return select(model, plan, replace(info_of(model), notes=(note,), selection=selection))
    state, metadata = read_weights(find_weights(name, weights))  # type: ignore[arg-type]
    published = public_weights(name).get(str(weights))
    if plan is None and published is not None:
        plan = published.plan
    with torch.device("meta"):
        count = len(convert(state, create_model(name))[1]["classifier.bias"])
    model = create_model(name, num_classes=count, size=size)
    selection = {"method": method or "stts", "scorer": find_scorer(state)}
    info = replace(info_of(model), selection=selection)
    select(model, plan, info)  # first, since the authors' scorers are named by the model's sites
    initial = load_weights(model, state, title=str(weights)).initial
    trained = {key: own for key, own in own_selectors(model).items() if key not in initial}
    named = read_class_names(KINETICS400) if published and count == 400 else info.class_names
    names = dict(enumerate(metadata.get("class_names") or named))
    model.info = replace(info, id2label=names, trained=trained or None)  # type: ignore[assignment]
    return model


def find_scorer(state: Mapping[str, Tensor]) -> str:
    """Tell from the names of weights which scorer they are of, or the default for dense ones."""
    if any(map(is_scorer, state)):
        return "released"
    names = " ".join(state)
    if ".scoring.network.local." in names:
        return "paper"
    is_older = ".scoring.network." in names and ".scoring.evenness" not in names
    return "from-uniform" if is_older else DEFAULT_SCORER


def save_model(
    model: nn.Module,
    path: str | Path,
    *,
    class_names: Sequence[str] = (),
    metadata: Mapping[str, Any] | None = None,
) -> Path:
    """Write a model, whole or not at all, and give the file.

    Args:
        model: of ours or of a supported library, with whatever selectors it has now.
        path: a file, or a folder to write `model.safetensors` into; models of transformers are
            written by their own `save_pretrained`, into a folder.
        class_names: of its outputs, in order; those of a loaded model stay if none are given.
        metadata: anything else to keep, as JSON: a recipe, results. It is added to what a loaded
            model has.
    """
    path = Path(path)
    if getattr(model, "settings", None) is None and is_supported(model):
        return save_host(model, path, metadata=metadata)
    described, info = describe_model(model), info_of(model)
    is_named = info.id2label != number_classes(described["num_classes"])
    names = list(class_names) or (info.class_names if is_named else [])
    if names and len(names) != described["num_classes"]:
        raise ValueError(
            f"class_names must be {described['num_classes']}, one per output, got {len(names)}"
        )
    known = {**info.metadata, **(metadata or {}), "model": described, "class_names": names}
    return write_tensors(model, path, known)


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
    files, described = find_files(source)
    with blaming_source(source):
        selection = read_settings(described.get("selection") or described.get(CHILD) or {})
        if not selection:
            raise ValueError(f"{source} holds no plan: its model was saved without selectors")
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
        files, described = find_files(source)
    except FileNotFoundError:
        return None
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


def find_files(source: str | Path) -> tuple[list[Path], dict[str, Any]]:
    """Find a source's files of weights, downloaded if need be, and what describes their model.

    Large models have several. The configuration of transformers beside them describes it, else what
    `save_model` wrote.
    """
    if is_repository(source):
        fetch_repository(str(source), CONFIG)
    shards = sorted(Path(source).expanduser().glob("model-*-of-*.safetensors"))
    files = shards or [find_checkpoint(source)]
    config = files[0].with_name(CONFIG)
    if not (files[0].stem.startswith("model") and config.is_file()):
        return files, read_metadata(files[0])
    try:
        return files, dict(json.loads(config.read_text()))
    except (TypeError, ValueError) as error:
        raise ValueError(f"{config} is not a model configuration: {error}") from error


def read_tensors(files: Sequence[Path]) -> dict[str, Tensor]:
    """Read all tensors of several files."""
    return {name: tensor for file in files for name, tensor in load_file(file).items()}


def read_settings(saved: Mapping[str, Any]) -> dict[str, Any]:
    """Read the settings of selectors from JSON."""
    settings = dict(saved)
    if "is_tokenwise" in settings:  # as 0.1 wrote it
        settings["tokenwise"] = settings.pop("is_tokenwise")
    if settings.get("stride") is not None:
        settings["stride"] = tuple(settings["stride"])
    return settings
