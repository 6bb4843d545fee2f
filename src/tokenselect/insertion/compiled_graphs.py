"""Compiled graphs that notice selectors.

`torch.compile` shares graphs between the models of a class and takes it that a block without hooks
never gets any, here or in another model. Selectors are hooks: a selected model would be given the
graph of a dense one, and its logits. One switch makes graphs look at hooks, too.
"""

import sys
from importlib.abc import MetaPathFinder
from importlib.machinery import ModuleSpec
from importlib.util import find_spec
from typing import Any

CONFIG = "torch._dynamo.config"


def notice_hooks() -> None:
    """Make compiled graphs look at hooks from now on; those that do not are dropped.

    The compiler takes seconds to import and most processes never do: if it is not there yet, the
    switch is set as soon as it comes.
    """
    config: Any = sys.modules.get(CONFIG)
    if config is None:
        if not any(isinstance(finder, _SwitchOnImport) for finder in sys.meta_path):
            sys.meta_path.insert(0, _SwitchOnImport())
    elif config.skip_nnmodule_hook_guards:
        config.skip_nnmodule_hook_guards = False
        sys.modules["torch._dynamo"].reset()


class _SwitchOnImport(MetaPathFinder):
    """Waits for the compiler's settings to be imported, sets the switch and goes."""

    def find_spec(self, name: str, path: object, target: object = None) -> ModuleSpec | None:
        """Give the module's own spec, whose loader sets the switch when it has run."""
        if name != CONFIG:
            return None
        sys.meta_path.remove(self)
        spec = find_spec(name)
        if spec is None or spec.loader is None:
            return spec
        run = spec.loader.exec_module

        def run_and_switch(module: Any) -> None:
            run(module)
            module.skip_nnmodule_hook_guards = False

        spec.loader.exec_module = run_and_switch  # type: ignore[method-assign]
        return spec
