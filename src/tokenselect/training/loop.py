"""The training loop: epochs of steps, a validation after each, checkpoints on the way."""

import math
import os
import signal
import threading
import time
from collections import deque
from collections.abc import Callable, Iterable, Iterator
from contextlib import contextmanager
from dataclasses import asdict, dataclass, field
from itertools import islice
from pathlib import Path
from types import FrameType
from typing import Any

import torch
from torch.utils.data import DataLoader

from tokenselect.ops.topk_hard import NonFiniteScoresError
from tokenselect.training.checkpoint import (
    Checkpoint,
    list_checkpoints,
    save_checkpoint,
    tidy_checkpoints,
)
from tokenselect.training.data import ClipSet, EpochOrder
from tokenselect.training.distributed import main_process_says, wait_for_all
from tokenselect.training.learner import Learner
from tokenselect.training.report import RunReport, write_duration
from tokenselect.training.step import NonFiniteError, Part

ADVICE = (
    "Try a lower --schedule.lr, a longer --schedule.warmup_epochs, a smaller "
    "--schedule.clip_norm or --precision fp32. The last checkpoint is from before this step; "
    "resumed unchanged, the run would stop here again."
)


@dataclass(frozen=True)
class Best:
    """The best validation so far."""

    top1: float
    epoch: int
    step: int


@dataclass(kw_only=True)
class Trainer:
    """A run: `run` trains from where the run stands to its end."""

    folder: Path  # of the run
    learner: Learner  # takes the steps
    clips: ClipSet  # to train on
    loader: DataLoader[Any]  # parts of batches of the clips, in the order of `order`
    order: EpochOrder  # of the training data
    val_loader: DataLoader[Any]  # clips to validate on; the highest top-1 makes the best checkpoint
    epochs: int  # passes over the data
    metadata: dict[str, Any] = field(default_factory=dict)  # goes into each checkpoint's weights
    validate_every: int = 1  # epochs from one validation to the next, and to the end
    patience: int | None = None  # epochs without a better validation after which the run ends
    opening: list[str] = field(default_factory=list)  # lines that say what is trained, on what
    testing: str = ""  # command that tests the best checkpoint
    checkpoint_seconds: float = 600  # time between checkpoints within an epoch
    checkpoint_steps: int | None = None  # steps between them, too, if given
    step: int = 0  # optimizer steps taken
    finished: int = 0  # epochs that are over, with their validation
    best: Best | None = None  # None before the first validation

    @property
    def total_steps(self) -> int:
        """Steps of the whole run."""
        return self.epochs * self.order.batches_per_epoch

    def restore(self, found: Checkpoint) -> None:
        """Go to where a checkpoint was written."""
        state, per_epoch = found.state, self.order.batches_per_epoch
        before = state.get("steps_per_epoch", per_epoch)
        if before != per_epoch:
            raise ValueError(
                f"{self.folder} began with {before} steps per epoch and would continue with "
                f"{per_epoch} ({len(self.clips)} training clips, schedule.batch_size "
                f"{self.order.batch_size}): resume it with its original data and batch size"
            )
        self.learner.restore(found.weights, state["learner"])
        self.step, self.best = state["step"], read_best(state, self.folder, per_epoch)
        # Version 0.1 did not say whether the last epoch was validated: it is validated again.
        self.finished = state.get("finished", max(self.step - 1, 0) // per_epoch)
        wait_for_all()
        if self.learner.processes.is_main:
            tidy_checkpoints(
                self.folder, last=self.step, best=self.best.step if self.best else None
            )

    def run(self) -> dict[str, float]:
        """Train to the end; return the figures of the last validation."""
        figures: dict[str, float] = {}
        with (
            RunReport(
                folder=self.folder,
                total_steps=self.total_steps,
                steps_per_epoch=self.order.batches_per_epoch,
                validate_every=self.validate_every,
                step=self.step,
                epoch=self.finished,
                enabled=self.learner.processes.is_main,
            ) as report,
            catching_signals(report) as is_asked,
        ):
            for line in self.opening:
                report.say(line)
            for epoch in range(self.finished, self.epochs):
                if self.best and self.finished - 1 - self.best.epoch >= (self.patience or math.inf):
                    report.say(f"stopped early: no better validation in {self.patience} epochs")
                    break
                self.train_epoch(epoch, report, is_asked)
                figures = self.finish_epoch(epoch, report)
                if self.finished < self.epochs:
                    self.stop_if_asked(is_asked)
            if self.best is not None:
                report.say(
                    f"best {self.best.top1:.1%} at epoch {self.best.epoch + 1}, in "
                    f"{self.folder / 'best'}; evaluate it with: {self.testing}"
                )
        return figures

    def train_epoch(self, epoch: int, report: RunReport, is_asked: Callable[[], bool]) -> None:
        """Take the steps of an epoch that are still to be taken."""
        self.order.epoch = epoch
        self.order.first_batch = self.step - epoch * self.order.batches_per_epoch
        if self.order.first_batch == self.order.batches_per_epoch:
            return
        self.clips.dataset.set_epoch(epoch)  # type: ignore[attr-defined]
        recent: deque[float] = deque(maxlen=5)
        saved = time.monotonic()
        for parts in grouped(self.loader, self.order.parts):
            self.learner.look_back(self.step, report.say)
            try:
                done = self.learner.learn(parts, self.step)
            except NonFiniteError as error:
                raise NonFiniteError(self.explain(error, recent)) from None
            recent.append(done.loss)
            figures = self.learner.figures(self.step)
            self.step += 1
            report.train(step=self.step, epoch=epoch, **(asdict(done) | figures))
            is_due = self.checkpoint_steps is not None and self.step % self.checkpoint_steps == 0
            if is_due or main_process_says(time.monotonic() - saved > self.checkpoint_seconds):
                self.save()
                saved = time.monotonic()
            self.stop_if_asked(is_asked)

    def stop_if_asked(self, is_asked: Callable[[], bool]) -> None:
        """End the run with a checkpoint if the user wants it to."""
        if main_process_says(is_asked()):
            self.save()
            raise KeyboardInterrupt

    def finish_epoch(self, epoch: int, report: RunReport) -> dict[str, float]:
        """Validate if it is time to, report and write a checkpoint."""
        self.check_weights()
        self.finished, start = epoch + 1, time.perf_counter()
        if self.finished % self.validate_every and self.finished < self.epochs:
            self.save()
            return {}
        try:
            figures = self.learner.validate(
                self.val_loader, num_classes=len(self.clips.class_names)
            )
        except NonFiniteScoresError as error:
            raise NonFiniteError(self.explain(error)) from None
        replaced = self.clips.count_replaced()
        report.write("val", step=self.step, epoch=epoch, replaced_videos=replaced, **figures)
        shown = ", ".join(f"{name} {value:.1%}" for name, value in figures.items())
        broken = f" ({replaced} broken videos replaced so far)" if replaced else ""
        if self.best is None or figures["top1"] > self.best.top1:
            self.best = Best(figures["top1"], epoch, self.step)
        self.save()
        report.validation_seconds = time.perf_counter() - start
        left = f"; {write_duration(report.seconds_left(self.step))} left"
        ending = left if self.finished < self.epochs else ""
        report.say(f"epoch {self.finished} of {self.epochs}: {shown}{broken}{ending}")
        report.restart_clock()
        return figures

    def save(self) -> None:
        """Write a checkpoint of the position that the run has reached."""
        self.check_weights()
        weights, learned = self.learner.weights(), self.learner.state()
        best = {} if self.best is None else {"best_top1": self.best.top1}
        if self.learner.processes.is_main:
            save_checkpoint(
                self.folder,
                self.step,
                weights=weights,
                state={
                    "learner": learned,
                    "step": self.step,
                    "finished": self.finished,
                    "best": self.best and asdict(self.best),
                    "steps_per_epoch": self.order.batches_per_epoch,
                    "threads": torch.get_num_threads(),
                },
                metadata=self.metadata | {"step": self.step} | best,
                best_step=self.best.step if self.best else None,
            )
        wait_for_all()

    def check_weights(self) -> None:
        """Refuse to go on with weights that are not finite."""
        if broken := self.learner.find_non_finite():
            raise NonFiniteError(self.explain(f"{broken} holds values that are not finite"))

    def explain(self, error: object, recent: Iterable[float] = ()) -> str:
        """Say where the loss failed, what went before, and what may help."""
        before = ", ".join(f"{loss:.4g}" for loss in recent)
        figures = self.learner.figures(self.step)
        values = ", ".join(f"{name} {value:.3g}" for name, value in figures.items())
        epoch = self.step // self.order.batches_per_epoch
        losses = f"; losses before: {before}" if before else ""
        return f"{error} at step {self.step} (epoch {epoch}), {values}{losses}. {ADVICE}"


def read_best(state: dict[str, Any], run: Path, steps_per_epoch: int) -> Best | None:
    """Read the best validation of a run's state, of this version or of 0.1."""
    best = state["best"]
    if isinstance(best, dict):
        return Best(**best)
    if best is None or best == float("-inf"):
        return None
    oldest = list_checkpoints(run)[-1].name  # 0.1 keeps the last and the best, and no others
    name = os.readlink(run / "best") if (run / "best").is_symlink() else oldest
    step = int(name.removeprefix("step-"))
    return Best(best, (step - 1) // steps_per_epoch, step)


@contextmanager
def catching_signals(report: RunReport) -> Iterator[Callable[[], bool]]:
    """Let Ctrl+C and the end of a job stop a run between two steps; give whether it should stop.

    The first signal asks for the stop, the second one stops at once. Only the main thread of a
    process can catch signals; in another one nothing changes.
    """
    asked: list[int] = []
    before: dict[int, Any] = {}

    def ask(number: int, frame: FrameType | None) -> None:
        asked.append(number)
        if len(asked) > 1:
            raise KeyboardInterrupt
        report.say(
            "stopping after this step or validation, with a checkpoint; a second one stops at once"
        )

    if threading.current_thread() is threading.main_thread():
        before = {number: signal.signal(number, ask) for number in (signal.SIGINT, signal.SIGTERM)}
    try:
        yield lambda: bool(asked)
    finally:
        for number, handler in before.items():
            signal.signal(number, handler)


def grouped(parts: Iterable[Part], size: int) -> Iterator[list[Part]]:
    """Join every `size` parts that come one after the other."""
    iterator = iter(parts)
    while group := list(islice(iterator, size)):
        yield group
