"""Preparing a model that will only be run.

Weights stay as they are: a layout of their own for the products (oneDNN's) was measured to gain
nothing at most sizes (docs/performance.md). What does cost time is memory: a CPU's system hands out
large pieces as untouched pages and takes them back after every clip.
"""

import ctypes
import sys

from torch import nn

_MMAP_THRESHOLD, _TRIM_THRESHOLD = -3, -1  # names of glibc's <malloc.h>
_MOST, _MOST_OF_OLD_VERSIONS = 2**30, 2**25  # bytes


def optimize_for_inference(model: nn.Module, *, keep_memory: bool = True) -> nn.Module:
    """Prepare a model to be run clip after clip: in place, in evaluation mode, without gradients.

    Run it inside `torch.inference_mode()`: that is what lets our backbones take their fast paths.

    Args:
        model: any, with or without selectors.
        keep_memory: let the whole process keep what a clip frees for the next one, up to a
            gigabyte, instead of giving it back to the system each time; see `keep_freed_memory`.
    """
    if keep_memory:
        keep_freed_memory()
    return model.eval().requires_grad_(False)


def keep_freed_memory() -> bool:
    """Make this process reuse freed memory instead of returning it to the system, for good.

    Only where glibc allocates (Linux); gives whether it took effect.
    """
    is_linux = sys.platform.startswith("linux")
    mallopt = getattr(ctypes.CDLL(None), "mallopt", None) if is_linux else None
    if mallopt is None:  # another C library
        return False
    is_set = any(mallopt(_MMAP_THRESHOLD, size) for size in (_MOST, _MOST_OF_OLD_VERSIONS))
    return is_set and bool(mallopt(_TRIM_THRESHOLD, _MOST))
