"""Compiled graphs that notice selectors.

`torch.compile` shares graphs between the models of a class and takes it that a module without hooks
never gets any, here or in another model. Selectors are hooks: a selected model would be given the
graph of a dense one, and its logits. What the compiler does check, in every module that it calls,
is that `forward` is the one of the class and not an attribute of the module itself.
"""

from types import MethodType

from torch import nn


def mark_hooked(model: nn.Module) -> None:
    """Give every module with hooks its own `forward` as an attribute, and take it from the others.

    It is the bound method that the module has anyway, so that nothing else changes.
    """
    for module in model.modules():
        mark = module.__dict__.get("forward")
        if module._forward_pre_hooks or module._forward_hooks:
            if mark is None and _is_own(module.forward, module):
                module.__dict__["forward"] = module.forward
        elif mark is not None and _is_own(mark, module):
            del module.__dict__["forward"]


def _is_own(forward: object, module: nn.Module) -> bool:
    """Tell whether `forward` is what the module's class has, and not someone's replacement."""
    return isinstance(forward, MethodType) and forward == MethodType(type(module).forward, module)
