"""Preparing a model that will only be run.

Weights stay as they are: packing them for oneDNN gains nothing at most sizes (docs/performance.md).
Memory does cost time: the system hands out large pieces as fresh pages, and takes them back after
every clip.
"""

import ctypes
import sys

from torch import nn

_MMAP_THRESHOLD, _TRIM_THRESHOLD = -3, -1  # names of glibc's <malloc.h>
_MOST, _MOST_OF_OLD_VERSIONS = 2**30, 2**25  # bytes


def optimize_for_inference(model: nn.Module, *, keep_memory: bool = False) -> nn.Module:
    """Put a model into evaluation mode and turn its gradients off, in place; return it.

    Run it inside `torch.inference_mode()`, so that our backbones take their fast paths.
    `keep_memory` also calls `keep_freed_memory`, which changes the whole process for good.
    """
    if keep_memory:
        keep_freed_memory()
    return model.eval().requires_grad_(False)


def keep_freed_memory() -> bool:
    """Make this process keep up to 1 GB of freed memory for the next clip, for as long as it runs.

    Works where glibc allocates (Linux), and cannot be undone. Returns whether it took effect.
    """
    is_linux = sys.platform.startswith("linux")
    mallopt = getattr(ctypes.CDLL(None), "mallopt", None) if is_linux else None
    if mallopt is None:  # another C library
        return False
    is_set = any(mallopt(_MMAP_THRESHOLD, size) for size in (_MOST, _MOST_OF_OLD_VERSIONS))
    return is_set and bool(mallopt(_TRIM_THRESHOLD, _MOST))
