"""What a run tells while it runs: a progress bar, metrics.jsonl, and TensorBoard if installed."""

from __future__ import annotations

import importlib.util
import json
import time
from pathlib import Path
from typing import Any

from rich.console import Console
from rich.progress import BarColumn, MofNCompleteColumn, Progress, TextColumn, TimeRemainingColumn

METRICS = "metrics.jsonl"


class RunReport:
    """Writes the metrics of a run; silent in all processes but the main one.

    Used as a context: the progress bar ends with it, whatever happens.
    """

    def __init__(
        self,
        folder: Path,
        *,
        total_steps: int,
        step: int = 0,
        epoch: int = 0,
        enabled: bool = True,
    ):
        """Continue the metrics of a run after `step` steps and `epoch` validated epochs."""
        self.enabled = enabled
        self.console = Console(stderr=True, quiet=not enabled)
        self.progress = Progress(
            TextColumn("epoch {task.fields[epoch]}"),
            BarColumn(),
            MofNCompleteColumn(),
            TextColumn("{task.fields[figures]}"),
            TimeRemainingColumn(),
            console=self.console,
            disable=not enabled,
        )
        self.task = self.progress.add_task(
            "", total=total_steps, completed=step, epoch=0, figures=""
        )
        self.path = folder / METRICS
        if enabled:
            folder.mkdir(parents=True, exist_ok=True)
            keep_until(self.path, step, epoch)
        self.board = open_board(folder) if enabled else None
        self._clock, self._clips = time.perf_counter(), 0

    def __enter__(self) -> RunReport:
        self.progress.start()
        return self

    def __exit__(self, *error: object) -> None:
        self.progress.stop()
        if self.board is not None:
            self.board.close()

    def train(self, *, step: int, epoch: int, num_clips: int, **figures: float) -> None:
        """Report a training step; `step` counts from 1."""
        self._clips += num_clips
        speed = self._clips / max(time.perf_counter() - self._clock, 1e-9)
        if not self.enabled:
            return
        figures["clips_per_second"] = speed
        self.progress.update(self.task, completed=step, epoch=epoch, figures=describe(figures))
        self.write("train", step=step, epoch=epoch, **figures)

    def write(self, kind: str, *, step: int, **figures: Any) -> None:
        """Append a line to metrics.jsonl, and the numbers to TensorBoard."""
        if not self.enabled:
            return
        with self.path.open("a") as file:
            file.write(json.dumps({"kind": kind, "step": step, **figures}) + "\n")
        if self.board is not None:
            for name, value in figures.items():
                if isinstance(value, int | float):
                    self.board.add_scalar(f"{kind}/{name}", value, step)

    def restart_clock(self) -> None:
        """Start the count of clips a second afresh, after a validation."""
        self._clock, self._clips = time.perf_counter(), 0

    def say(self, text: str) -> None:
        """Print a line above the progress bar."""
        self.console.print(text, highlight=False)


def describe(figures: dict[str, float]) -> str:
    """Put the figures of a step into one short line."""
    shown = [
        f"loss {figures['loss']:.3f}",
        f"accuracy {figures['accuracy']:.1%}",
        f"lr {figures['lr']:.2g}",
        f"{figures['clips_per_second']:.1f} clips/s",
    ]
    if "sigma" in figures:
        shown.insert(3, f"σ {figures['sigma']:.3f}")
    return "  ".join(shown)


def keep_until(path: Path, step: int, epoch: int) -> None:
    """Drop what comes after `step` and finished epochs: a resumed run does that again."""
    if not path.exists():
        return
    lines = [line for line in path.read_text().splitlines() if is_before(line, step, epoch)]
    path.write_text("".join(f"{line}\n" for line in lines))


def is_before(line: str, step: int, epoch: int) -> bool:
    """Tell whether a line of the metrics stays; one that a killed run did not finish does not."""
    try:
        values = json.loads(line)
        return values["step"] <= step and (values["kind"] != "val" or values["epoch"] < epoch)
    except (ValueError, KeyError, TypeError):
        return False


def open_board(folder: Path) -> Any:
    """Open a TensorBoard writer if the package is there, else give None."""
    if importlib.util.find_spec("tensorboard") is None:
        return None
    from torch.utils.tensorboard import SummaryWriter

    return SummaryWriter(folder / "tensorboard")
