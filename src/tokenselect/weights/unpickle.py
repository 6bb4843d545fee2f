"""Reading the tensors of a pickled checkpoint without running anything it names.

Training frameworks pickle more than tensors: settings, loggers, objects of classes that are not
installed here. `torch.load(weights_only=True)` refuses such a file as a whole. Here whatever is not
needed for a tensor becomes an empty placeholder, so the weights can still be had, and a file made
to do harm does nothing.
"""

import collections
import pickle
from pathlib import Path
from types import ModuleType
from typing import IO, Any

import torch

ALLOWED = {
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

    def __setstate__(self, state: Any) -> None:
        pass

    def __setitem__(self, key: Any, value: Any) -> None:
        pass

    def __hash__(self) -> int:
        return id(self)

    def append(self, item: Any) -> None:
        """Ignore an item."""

    def extend(self, items: Any) -> None:
        """Ignore items."""


class TensorUnpickler(pickle.Unpickler):
    """Finds what tensors are made of, and placeholders for all else."""

    def find_class(self, module: str, name: str) -> Any:
        """Give the class or function of that name if it is one of a tensor.

        Names of storages never come here: `torch.load` takes them itself.
        """
        if (module, name) in ALLOWED:
            return ALLOWED[module, name]
        if module == "torch" and isinstance(getattr(torch, name, None), torch.dtype):
            return getattr(torch, name)
        return Placeholder


class _Pickle(ModuleType):
    """What `torch.load` asks of a pickle module."""

    Unpickler = TensorUnpickler

    @staticmethod
    def load(file: IO[bytes], **options: Any) -> Any:
        """Read one object."""
        return TensorUnpickler(file, **options).load()


def load_tensors(path: Path) -> Any:
    """Read what `torch.save` wrote, tensors as they are and placeholders for the rest."""
    with path.open("rb") as file:
        return torch.load(
            file, map_location="cpu", weights_only=False, pickle_module=_Pickle("tensors_only")
        )
