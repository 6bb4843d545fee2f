"""Optional packages: imported where they are needed, and one sentence where they are missing."""

from importlib import import_module
from types import ModuleType


class MissingExtraError(ImportError):
    """An optional package is not installed; the message says what installs it."""


def require(package: str, *, extra: str, purpose: str) -> ModuleType:
    """Import an optional package, which `extra` brings; errors begin with `purpose`, its use."""
    try:
        return import_module(package)
    except ImportError as error:
        raise MissingExtraError(
            f"{purpose} needs {error.name or package}: pip install 'tokenselect[{extra}]'"
        ) from error
