"""The arguments of one call of a module, and the hook that changes them."""

from collections.abc import Callable
from dataclasses import dataclass, field, replace
from typing import Any

from torch import nn
from torch.utils.hooks import RemovableHandle


@dataclass(frozen=True)
class Arguments:
    """What a block is called with; adapters read it and give a changed copy back.

    Attributes:
        positional: in their order.
        named: by their names.
    """

    positional: tuple[Any, ...] = ()
    named: dict[str, Any] = field(default_factory=dict)

    def get(self, index: int, name: str) -> Any:
        """Give the argument at `index` or, if it was passed by name or not at all, by `name`."""
        if index < len(self.positional):
            return self.positional[index]
        return self.named.get(name)

    def put(self, index: int, name: str, value: Any) -> "Arguments":
        """Return the arguments with this one changed, in the place where it was given."""
        if index < len(self.positional):
            before, after = self.positional[:index], self.positional[index + 1 :]
            return replace(self, positional=(*before, value, *after))
        return replace(self, named={**self.named, name: value})


Change = Callable[[Arguments], Arguments]


class ArgumentsHook:
    """Forward pre-hook that changes the arguments; a plain object, so models can be pickled."""

    def __init__(self, change: Change) -> None:
        self.change = change

    def __call__(
        self, module: nn.Module, positional: tuple[Any, ...], named: dict[str, Any]
    ) -> tuple[tuple[Any, ...], dict[str, Any]]:
        """Change them."""
        arguments = self.change(Arguments(positional, named))
        return arguments.positional, arguments.named


def change_arguments(module: nn.Module, change: Change) -> RemovableHandle:
    """Make `module` see its arguments through `change`, from now on until removed."""
    return module.register_forward_pre_hook(ArgumentsHook(change), with_kwargs=True)
