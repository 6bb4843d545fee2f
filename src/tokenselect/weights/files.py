"""Weight files: found, read without running anything they name, and unwrapped."""

import collections
import json
import pickle
from collections.abc import Iterator, Mapping
from contextlib import contextmanager, suppress
from pathlib import Path
from types import ModuleType
from typing import Any

import torch
from safetensors import safe_open
from safetensors.torch import load_file
from torch import Tensor

from tokenselect.extras import MissingExtraError
from tokenselect.weights.public import fetch_repository, is_repository

WEIGHTS = "model.safetensors"
WRAPPERS = ("module.", "_orig_mod.", "model.")  # of DDP, torch.compile, Lightning
IGNORED = ("data_preprocessor.",)  # colours of mmaction2, not learned
NO_WEIGHTS = "is damaged, or neither a safetensors nor a torch file"
ALLOWED = {  # what tensors are made of
    ("collections", "OrderedDict"): collections.OrderedDict,
    ("torch._utils", "_rebuild_tensor"): torch._utils._rebuild_tensor,
    ("torch._utils", "_rebuild_tensor_v2"): torch._utils._rebuild_tensor_v2,
    ("torch._utils", "_rebuild_parameter"): torch._utils._rebuild_parameter,
}


class Placeholder:
    """Stands for an object that is not needed; takes whatever a pickle does to one."""

    def __new__(cls, *arguments: Any, **options: Any) -> "Placeholder":
        """Ignore what the object was made of."""
        return super().__new__(cls)

    def __call__(self, *arguments: Any, **options: Any) -> "Placeholder":
        """Stand for the result, too."""
        return self

    def __setitem__(self, *content: Any) -> None:
        pass

    append = extend = __setstate__ = __setitem__


class TensorUnpickler(pickle.Unpickler):
    """Finds what tensors are made of, and placeholders for all else."""

    def find_class(self, module: str, name: str) -> Any:
        """Give what tensors are made of; `torch.load` itself takes the names of storages."""
        if (module, name) in ALLOWED:
            return ALLOWED[module, name]
        if module == "torch" and isinstance(getattr(torch, name, None), torch.dtype):
            return getattr(torch, name)
        return Placeholder


def find_checkpoint(path: str | Path) -> Path:
    """Find the file of weights that a path or a name stands for.

    It may be a run's folder (its best is taken, else its last), a checkpoint's folder, a file, or a
    repository of the Hugging Face Hub ("user/name").
    """
    if is_repository(path):
        return fetch_repository(str(path), WEIGHTS)
    path = Path(path).expanduser()
    if path.is_file():
        return path
    for folder in (path, path / "best", path / "last"):
        if (folder / WEIGHTS).is_file():
            return folder / WEIGHTS
    raise FileNotFoundError(
        f"no checkpoint at {path}: give a file, a checkpoint's folder (with {WEIGHTS} in it) or a "
        "run's folder (with best/ or last/ in it)"
    )


def read_weights(path: str | Path) -> tuple[dict[str, Tensor], dict[str, Any]]:
    """Read the weights and the metadata of the file that `find_checkpoint` finds at `path`.

    The file's kind is told from its first bytes; only safetensors hold metadata.
    """
    file = find_checkpoint(path)
    with blaming_source(file, NO_WEIGHTS):
        if not is_safetensors(file):
            return unwrap(_load_pickled(file)), {}
        return unwrap(load_file(file)), read_metadata(file)


def read_metadata(path: str | Path) -> dict[str, Any]:
    """Read the metadata alone; empty where the file is not a safetensors file."""
    file = find_checkpoint(path)
    if not is_safetensors(file):
        return {}
    with blaming_source(file, NO_WEIGHTS), safe_open(file, framework="pt") as opened:
        found: dict[str, Any] = dict(opened.metadata() or {})
    for name, text in found.items():
        with suppress(json.JSONDecodeError):  # other programs write text that is none: it stays
            found[name] = json.loads(text)
    return found


@contextmanager
def blaming_source(source: str | Path, trouble: str = "cannot be loaded") -> Iterator[None]:
    """Name a source in whatever a damaged one makes its reader raise."""
    try:
        yield
    except Exception as error:  # a damaged pickle can raise anything
        is_named = str(source) in str(error)
        if isinstance(error, OSError | ValueError | MissingExtraError) and (
            is_named or getattr(error, "filename", None) is not None
        ):
            raise
        line = (str(error).splitlines() or [""])[0]
        kind = "" if isinstance(error, ValueError) else f"{type(error).__name__}: "
        raise ValueError(f"{source} {trouble}: {kind}{line}") from error


def is_safetensors(file: Path) -> bool:
    """Tell a safetensors file by its beginning: the length of a JSON header, then the header."""
    with file.open("rb") as opened:
        beginning = opened.read(9)
    length = int.from_bytes(beginning[:8], "little")
    return beginning[8:] == b"{" and length <= file.stat().st_size - 8


def unwrap(content: Any) -> dict[str, Tensor]:
    """Take the state dict out of a checkpoint, and its names out of common prefixes."""
    state = max(_state_dicts(content), key=len, default={})
    if not state:
        found = f"a {type(content).__name__}"
        if isinstance(content, Mapping):
            found = "the keys " + ", ".join(sorted(map(str, content))[:10])
        raise ValueError(f"no tensors by name in it, only {found}")
    state = {name: value for name, value in state.items() if not name.startswith(IGNORED)}
    while prefix := next((p for p in WRAPPERS if all(n.startswith(p) for n in state)), None):
        state = {name.removeprefix(prefix): value for name, value in state.items()}
    return state


def _state_dicts(content: Any, depth: int = 3) -> list[dict[str, Tensor]]:
    """List the dicts of named tensors in nested dicts, outermost first."""
    if not isinstance(content, Mapping):
        return []
    tensors = {n: v for n, v in content.items() if isinstance(n, str) and isinstance(v, Tensor)}
    found = [tensors] if tensors else []
    if depth:
        for value in content.values():
            found += _state_dicts(value, depth - 1)
    return found


def _load_pickled(file: Path) -> Any:
    """Read what `torch.save` wrote, tensors as they are and placeholders for the rest."""
    with file.open("rb") as opened:  # torch would go by the name
        try:
            return torch.load(opened, map_location="cpu", weights_only=True)
        except pickle.UnpicklingError:  # it holds more than tensors
            opened.seek(0)
            tensors_only: Any = ModuleType("tensors_only")
            tensors_only.Unpickler = TensorUnpickler
            tensors_only.load = lambda file, **options: TensorUnpickler(file, **options).load()
            return torch.load(
                opened, map_location="cpu", weights_only=False, pickle_module=tensors_only
            )
