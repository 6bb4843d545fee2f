"""σ for other trainers: all that a model with selectors needs beside their usual training.

Neither library is imported by this package; Hugging Face's asks for no base class, Lightning's is
made when it is asked for.
"""

import importlib
from collections.abc import Callable
from contextlib import suppress
from typing import Any

from torch import nn

from tokenselect.insertion import set_sigma
from tokenselect.training.optimizer import SigmaSchedule


class SigmaCallback:
    """For `transformers.Trainer`: lets σ fall in a line to 0 over the steps of the training.

        Trainer(model, arguments, train_dataset=clips, callbacks=[SigmaCallback()])

    It falls from `start` (paper, section 4.1).
    """

    def __init__(self, start: float = 0.1) -> None:
        self.start = start

    def on_step_begin(
        self, args: Any, state: Any, control: Any, *, model: nn.Module, **others: Any
    ) -> None:
        """Set σ before a step."""
        schedule = SigmaSchedule(total_steps=state.max_steps, start=self.start)
        set_sigma(model, schedule.at(state.global_step))

    def __getattr__(self, name: str) -> Callable[..., None]:
        """Answer the trainer's other events with nothing."""
        if name.startswith("on_"):
            return lambda *arguments, **options: None
        raise AttributeError(f"{type(self).__name__} has no attribute {name!r}")


def lightning_sigma(start: float = 0.1) -> Any:
    """Make a callback for Lightning's `Trainer` that does as `SigmaCallback` does.

        Trainer(max_epochs=20, callbacks=[lightning_sigma()])

    σ falls from `start`.
    """
    base: Any = None
    for name in ("lightning.pytorch", "pytorch_lightning"):  # whichever is installed
        with suppress(ModuleNotFoundError):
            base = base or importlib.import_module(name).Callback
    if base is None:
        raise ModuleNotFoundError("this callback needs Lightning: pip install lightning")

    class LightningSigma(base):
        """Sets σ before each step."""

        def on_train_batch_start(self, trainer: Any, module: nn.Module, *batch: Any) -> None:
            """Set σ before a step."""
            total = int(trainer.estimated_stepping_batches)
            schedule = SigmaSchedule(total_steps=total, start=start)
            set_sigma(module, schedule.at(trainer.global_step))

    return LightningSigma()
