"""What a run tells: a progress bar, train.log, metrics.jsonl, and TensorBoard if installed."""

import importlib.util
import json
import time
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Self

from rich.console import Console
from rich.progress import BarColumn, MofNCompleteColumn, Progress, TextColumn

from tokenselect.locking import write_whole

METRICS, LOG = "metrics.jsonl", "train.log"
PAUSE = 30.0  # seconds between two lines of the log within an epoch
ENOUGH = 3  # steps that tell how long an epoch takes


@dataclass(kw_only=True)
class RunReport:
    """Writes the metrics of a run; silent in all processes but the main one.

    Used as a context: the progress bar ends with it, whatever happens.
    """

    folder: Path  # of the run
    total_steps: int
    steps_per_epoch: int
    validate_every: int = 1
    step: int = 0  # steps that were taken before
    epoch: int = 0  # epochs that were validated before
    enabled: bool = True

    def __post_init__(self) -> None:
        self.console = Console(stderr=True, quiet=not self.enabled)
        epoch, figures = "epoch {task.fields[epoch]}", "{task.fields[figures]}"
        columns = TextColumn(epoch), BarColumn(), MofNCompleteColumn(), TextColumn(figures)
        is_drawn = self.enabled and self.console.is_terminal
        self.progress = Progress(*columns, console=self.console, disable=not is_drawn)
        self.task = self.progress.add_task(
            "", total=self.total_steps, completed=self.step, epoch=self.epoch + 1, figures=""
        )
        self.path = self.folder / METRICS
        if self.enabled:
            self.folder.mkdir(parents=True, exist_ok=True)
            keep_until(self.path, self.step, self.epoch)
        self.board = open_board(self.folder) if self.enabled else None
        self.step_seconds = self.validation_seconds = 0.0
        self.spoken = time.monotonic()
        self.restart_clock()

    def __enter__(self) -> Self:
        self.progress.start()
        return self

    def __exit__(self, *error: object) -> None:
        self.progress.stop()
        if self.board is not None:
            self.board.close()

    def train(self, *, step: int, epoch: int, num_clips: int, **figures: float) -> None:
        """Report a training step; `step` counts from 1."""
        if not self.enabled:
            return
        self._clips += num_clips
        self._steps += 1
        seconds = max(time.perf_counter() - self._clock, 1e-9)
        self.step_seconds = seconds / self._steps
        figures["clips_per_second"] = self._clips / seconds
        left = write_duration(self.seconds_left(step))
        sigma = f"  σ {figures['sigma']:.3f}" if "sigma" in figures else ""
        told = (
            f"loss {figures['loss']:.3f}  accuracy {figures['accuracy']:.1%}  "
            f"lr {figures['lr']:.2g}{sigma}  {figures['clips_per_second']:.1f} clips/s  {left} left"
        )
        self.progress.update(self.task, completed=step, epoch=epoch + 1, figures=told)
        self.write("train", step=step, epoch=epoch, **figures)
        if step == self.step + ENOUGH:
            whole = self.steps_per_epoch * self.step_seconds + self.validation_seconds
            self.say(f"an epoch takes about {write_duration(whole)}, the rest of the run {left}")
        elif time.monotonic() - self.spoken > PAUSE:
            line = f"epoch {epoch + 1}, step {step} of {self.total_steps}: {told}"
            self.say(line, is_shown=not self.console.is_terminal)  # which has the bar

    def seconds_left(self, step: int) -> float:
        """Estimate the rest of the run from the epoch's steps so far and the last validation."""
        steps = self.total_steps - step
        validations = -(-steps // (self.steps_per_epoch * self.validate_every))
        return steps * self.step_seconds + validations * self.validation_seconds

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
        """Start the count of steps and clips a second afresh, after a validation."""
        self._clock = time.perf_counter()
        self._clips = self._steps = 0

    def say(self, text: str, *, is_shown: bool = True) -> None:
        """Print a line above the progress bar, and write it to the log."""
        if not self.enabled:
            return
        self.spoken = time.monotonic()
        with (self.folder / LOG).open("a", encoding="utf-8") as file:
            file.write(f"{time.strftime('%Y-%m-%d %H:%M:%S')}  {text}\n")
        if is_shown:
            self.console.print(text, highlight=False, markup=False, soft_wrap=True)


def write_duration(seconds: float) -> str:
    """Write seconds as people say them: 40 s, 12 min, 3 h 20 min."""
    if seconds < 99.5:
        return f"{seconds:.0f} s"
    hours, minutes = divmod(round(seconds / 60), 60)
    return f"{hours} h {minutes} min" if hours else f"{minutes} min"


def keep_until(path: Path, step: int, epoch: int) -> None:
    """Drop what comes after `step` and finished epochs: a resumed run does that again."""
    kept = []
    for line in path.read_text().splitlines() if path.exists() else ():
        with suppress(ValueError, KeyError, TypeError):  # a line that a killed run did not finish
            values = json.loads(line)
            if values["step"] <= step and (values["kind"] != "val" or values["epoch"] < epoch):
                kept.append(f"{line}\n")
    if path.exists():
        write_whole(path, "".join(kept))


def open_board(folder: Path) -> Any:
    """Open a TensorBoard writer if the package is there, else give None."""
    if importlib.util.find_spec("tensorboard") is None:
        return None
    from torch.utils.tensorboard import SummaryWriter

    return SummaryWriter(folder / "tensorboard")
