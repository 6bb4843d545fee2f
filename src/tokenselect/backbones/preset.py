"""What every model of ours knows about itself: the settings that build it again."""

from __future__ import annotations

import functools
import warnings
from abc import abstractmethod
from collections.abc import Callable
from inspect import Parameter, Signature
from typing import Any, TypeVar

from torch import Tensor, nn

from tokenselect.backbones.layers import init_linear
from tokenselect.grid import TokenGrid
from tokenselect.plan import CHILD, SelectionPlan


def _as_in_0_1(name: str, instead: str, give: Callable[[Any], Any]) -> property:
    """Make an attribute of what `load_model` returned in 0.1: loaded models have it, and warn."""

    def read(model: Backbone) -> Any:
        if model.info is None:
            raise AttributeError(f"{type(model).__name__} has no attribute {name!r}")
        warnings.warn(f"model.{name} is deprecated: {instead}", DeprecationWarning, stacklevel=2)
        return give(model)

    return property(read, doc=f"As in 0.1; {instead}.")


class Backbone(nn.Module):
    """Base of our models."""

    default_input: tuple[int, int, int]  # frames, height, width of the clips it is meant for
    # name and arguments of the preset that built the model, as plain values for JSON; None for a
    # model built by its class
    settings: dict[str, Any] | None = None
    # what `load_model` knows about the model; None until it is loaded. Read it with
    # `tokenselect.checkpoints.info_of`
    info: Any = None
    blocks: nn.ModuleList

    model = _as_in_0_1("model", "load_model returns the model itself", lambda model: model)
    class_names = _as_in_0_1(
        "class_names", "use model.info.id2label", lambda model: tuple(model.info.class_names)
    )
    metadata = _as_in_0_1(
        "metadata",
        "use model.info.metadata",
        lambda m: {**m.info.metadata, "model": m.settings, "class_names": [*m.info.class_names]},
    )
    plan = _as_in_0_1(
        "plan",
        "use tokenselect.plan_of(model)",
        lambda model: getattr(getattr(model, CHILD, None), "plan", SelectionPlan()),
    )

    @abstractmethod
    def embed(self, video: Tensor) -> TokenGrid:
        """Turn (b, 3, frames, height, width) clips into tokens."""

    @abstractmethod
    def head(self, grid: TokenGrid) -> Tensor:
        """Map the last block's tokens to (b, num_classes) logits."""

    def forward(self, video: Tensor) -> Tensor:
        """Map (b, 3, frames, height, width) clips to (b, num_classes) logits."""
        grid = self.embed(video)
        for block in self.blocks:
            grid = block(grid)
        return self.head(grid)

    def add_head(self, channels: int, num_classes: int, *, dropout: float, eps: float) -> None:
        """Add norm and classifier, and start all linear layers."""
        self.norm = nn.LayerNorm(channels, eps=eps)
        if not 0 <= dropout < 1:
            raise ValueError(f"dropout must be in [0, 1), got {dropout}")
        self.dropout = nn.Dropout(dropout)
        self.classifier = nn.Linear(channels, num_classes)
        self.apply(init_linear)


B = TypeVar("B", bound=Backbone)


def preset(**defaults: Any) -> Callable[[Callable[..., B]], Callable[..., B]]:
    """Make a builder of a function: it takes the arguments named here and notes them on the model.

    A `size` may be a side, or height and width, and comes to the function as the latter.
    """

    def decorate(build: Callable[..., B]) -> Callable[..., B]:
        @functools.wraps(build)
        def build_and_note(**given: Any) -> B:
            unknown = [repr(name) for name in given if name not in defaults]
            if unknown:
                raise TypeError(
                    f"{build.__name__} does not take {', '.join(unknown)}; "
                    f"it takes {', '.join(defaults)}"
                )
            options = {**defaults, **given}
            if isinstance(options["size"], int):
                options["size"] = (options["size"],) * 2
            model = build(**options)
            plain = {n: list(v) if isinstance(v, tuple) else v for n, v in options.items()}
            model.settings = {"name": build.__name__, **plain}
            return model

        build_and_note.__signature__ = Signature(  # type: ignore[attr-defined]
            [Parameter(n, Parameter.KEYWORD_ONLY, default=v) for n, v in defaults.items()]
        )
        return build_and_note

    return decorate
