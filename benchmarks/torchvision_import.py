"""Imports torchvision beside a torch build that its compiled operators do not fit.

The package itself never imports torchvision: it is the numerical reference of tests and benchmarks.
"""

import importlib
from types import ModuleType

import torch

_STUBS: list[torch.library.Library] = []  # a library's operators live as long as the object does


def import_torchvision(module: str = "torchvision") -> ModuleType:
    """Import `module`, declaring torchvision's own operators first where they are missing."""
    try:
        return importlib.import_module(module)
    except RuntimeError as error:
        if "torchvision::nms" not in str(error) or _STUBS:
            raise
    library = torch.library.Library("torchvision", "FRAGMENT")
    for name in ("nms", "qnms"):
        library.define(f"{name}(Tensor dets, Tensor scores, float iou_threshold) -> Tensor")
    _STUBS.append(library)
    return importlib.import_module(module)
