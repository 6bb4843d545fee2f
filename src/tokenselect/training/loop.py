"""The training loop: epochs of steps, a validation after each, checkpoints on the way."""

from __future__ import annotations

import time
from collections import deque
from collections.abc import Iterable, Iterator
from dataclasses import dataclass, field
from itertools import islice
from pathlib import Path
from typing import Any

from torch.utils.data import DataLoader

from tokenselect.training.checkpoint import load_state, save_checkpoint
from tokenselect.training.data import ClipSet, EpochOrder
from tokenselect.training.distributed import main_process_says, wait_for_all
from tokenselect.training.learner import Learner
from tokenselect.training.report import RunReport
from tokenselect.training.step import Batch, NonFiniteLossError
from tokenselect.weights import read_weights

ADVICE = (
    "Try a lower --schedule.lr, a longer --schedule.warmup_epochs, a smaller "
    "--schedule.clip_norm or --precision fp32. The last checkpoint is from before this step; "
    "resumed unchanged, the run would stop here again."
)


@dataclass(kw_only=True)
class Trainer:
    """A run: `run` trains from where the run stands to its end.

    Attributes:
        folder: of the run.
        learner: takes the steps.
        clips: to train on.
        loader: parts of batches of the clips, in the order of `order`.
        order: of the training data.
        val_loader: clips to validate on; the highest top-1 makes the best checkpoint.
        epochs: passes over the data.
        metadata: goes into each checkpoint's weights.
        validate_every: epochs from one validation to the next, and to the end.
        checkpoint_seconds: time between checkpoints within an epoch.
        checkpoint_steps: steps between them, too, if given.
        step: optimizer steps taken.
        best: highest top1 so far.
    """

    folder: Path
    learner: Learner
    clips: ClipSet
    loader: DataLoader[Any]
    order: EpochOrder
    val_loader: DataLoader[Any]
    epochs: int
    metadata: dict[str, Any] = field(default_factory=dict)
    validate_every: int = 1
    checkpoint_seconds: float = 600
    checkpoint_steps: int | None = None
    step: int = 0
    best: float = float("-inf")

    def __post_init__(self) -> None:
        if self.validate_every < 1:
            raise ValueError(f"validate_every must be 1 epoch or more, got {self.validate_every}")

    @property
    def total_steps(self) -> int:
        """Steps of the whole run."""
        return self.epochs * self.order.batches_per_epoch

    def resume(self) -> bool:
        """Go to where the run's last checkpoint was written, if there is one."""
        state = load_state(self.folder)
        if state is None:
            return False
        weights, _ = read_weights(self.folder / "last")
        self.learner.restore(weights, state["learner"])
        self.step, self.best = state["step"], state["best"]
        return True

    def run(self) -> dict[str, float]:
        """Train to the end; return the figures of the last validation."""
        is_main = self.learner.processes.is_main
        figures: dict[str, float] = {}
        with RunReport(
            self.folder, total_steps=self.total_steps, step=self.step, enabled=is_main
        ) as report:
            per_epoch = self.order.batches_per_epoch
            for epoch in range(self.step // per_epoch, self.epochs):
                self.train_epoch(epoch, report)
                figures = self.finish_epoch(epoch, report)
        return figures

    def train_epoch(self, epoch: int, report: RunReport) -> None:
        """Take the steps of an epoch that are still to be taken."""
        self.order.epoch = epoch
        self.order.first_batch = self.step - epoch * self.order.batches_per_epoch
        self.clips.set_epoch(epoch)
        recent: deque[float] = deque(maxlen=5)
        saved = time.monotonic()
        for parts in grouped(self.loader, self.order.parts):
            try:
                done = self.learner.learn(parts, self.step)
            except NonFiniteLossError as error:
                raise NonFiniteLossError(self.explain(error, epoch, recent)) from None
            recent.append(done.loss)
            figures = self.learner.figures(self.step)
            self.step += 1
            report.train(
                step=self.step,
                epoch=epoch,
                num_clips=done.num_clips,
                loss=done.loss,
                accuracy=done.accuracy,
                gradient_norm=done.gradient_norm,
                **figures,
            )
            if self.is_checkpoint_due(saved):
                self.save(is_best=False)
                saved = time.monotonic()

    def is_checkpoint_due(self, saved: float) -> bool:
        """Decide, the same in all processes, whether to write a checkpoint within the epoch."""
        if self.checkpoint_steps is not None and self.step % self.checkpoint_steps == 0:
            return True
        return main_process_says(time.monotonic() - saved > self.checkpoint_seconds)

    def finish_epoch(self, epoch: int, report: RunReport) -> dict[str, float]:
        """Validate if it is time to, report and write a checkpoint."""
        if (epoch + 1) % self.validate_every and epoch + 1 < self.epochs:
            self.save(is_best=False)
            return {}
        figures = self.learner.validate(self.val_loader, num_classes=len(self.clips.class_names))
        replaced = self.clips.count_replaced()
        report.write("val", step=self.step, epoch=epoch, replaced_videos=replaced, **figures)
        shown = "  ".join(f"{name} {value:.4g}" for name, value in figures.items())
        broken = f"  ({replaced} broken videos replaced so far)" if replaced else ""
        report.say(f"epoch {epoch}: {shown}{broken}")
        is_best = figures["top1"] > self.best
        self.best = max(self.best, figures["top1"])
        self.save(is_best=is_best)
        report.restart_clock()
        return figures

    def save(self, *, is_best: bool) -> None:
        """Write a checkpoint of the position that the run has reached."""
        weights, learned = self.learner.weights(), self.learner.state()
        if self.learner.processes.is_main:
            save_checkpoint(
                self.folder,
                self.step,
                weights=weights,
                state={"learner": learned, "step": self.step, "best": self.best},
                metadata=self.metadata | {"step": self.step, "best_top1": self.best},
                is_best=is_best,
            )
        wait_for_all()

    def explain(self, error: Exception, epoch: int, recent: Iterable[float]) -> str:
        """Say where the loss failed, what went before, and what may help."""
        before = ", ".join(f"{loss:.4g}" for loss in recent) or "none in this process"
        figures = self.learner.figures(self.step)
        values = ", ".join(f"{name} {value:.3g}" for name, value in figures.items())
        return (
            f"{error} at step {self.step} (epoch {epoch}), {values}; losses before: {before}. "
            + ADVICE
        )


def grouped(parts: Iterable[Batch], size: int) -> Iterator[list[Batch]]:
    """Join every `size` parts that come one after the other."""
    iterator = iter(parts)
    while group := list(islice(iterator, size)):
        yield group
