"""What every model of ours knows about itself: the settings that build it again."""

from __future__ import annotations

import functools
import inspect
import warnings
from collections.abc import Callable
from typing import Any, ParamSpec, TypeVar

from torch import nn

from tokenselect.plan import CHILD, SelectionPlan


class Backbone(nn.Module):
    """Base of our models.

    Attributes:
        default_input: frames, height and width of the clips the model is meant for.
        settings: name and arguments of the preset that built the model, as plain values for JSON;
            None for a model built by its class.
        info: what `load_model` knows about the model; None until it is loaded. Read it with
            `tokenselect.checkpoints.info_of`.
    """

    default_input: tuple[int, int, int]
    settings: dict[str, Any] | None = None
    info: Any = None

    @property
    def model(self) -> Backbone:
        """The model itself; in 0.1 `load_model` returned a holder with this attribute."""
        self._check_loaded("model", "load_model returns the model itself")
        return self

    @property
    def class_names(self) -> tuple[str, ...]:
        """Names of the classes, as in 0.1."""
        self._check_loaded("class_names", "use model.info.id2label")
        return tuple(self.info.class_names)

    @property
    def metadata(self) -> dict[str, Any]:
        """What the file says, as in 0.1."""
        self._check_loaded("metadata", "use model.info.metadata")
        names = list(self.info.class_names)
        return {**self.info.metadata, "model": self.settings, "class_names": names}

    @property
    def plan(self) -> SelectionPlan:
        """What the model selects, as in 0.1."""
        self._check_loaded("plan", "use tokenselect.plan_of(model)")
        selectors: Any = getattr(self, CHILD, None)
        return SelectionPlan() if selectors is None else selectors.plan

    def _check_loaded(self, name: str, instead: str) -> None:
        """Warn about an attribute of 0.1, which only loaded models had."""
        if self.info is None:
            raise AttributeError(f"{type(self).__name__} has no attribute {name!r}")
        warnings.warn(f"model.{name} is deprecated: {instead}", DeprecationWarning, stacklevel=3)


P = ParamSpec("P")
B = TypeVar("B", bound=Backbone)


def preset(build: Callable[P, B]) -> Callable[P, B]:
    """Make a function that builds a model note its own name and all arguments on the model."""
    signature = inspect.signature(build)

    @functools.wraps(build)
    def build_and_note(*args: P.args, **kwargs: P.kwargs) -> B:
        model = build(*args, **kwargs)
        bound = signature.bind(*args, **kwargs)
        bound.apply_defaults()
        size = list(model.default_input[1:])
        values = {
            name: list(value) if isinstance(value, tuple) else value
            for name, value in bound.arguments.items()
        }
        model.settings = {"name": build.__name__, **values, "size": size}
        return model

    return build_and_note
