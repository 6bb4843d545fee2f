"""A tiny model and data for the tests of training: everything takes milliseconds."""

import json
import os
import signal
import sys
from pathlib import Path

import torch
from torch import Tensor, nn
from torch.utils.data import DataLoader, Dataset, default_collate

from tokenselect.data import seeded_generator
from tokenselect.grid import TokenGrid
from tokenselect.training.data import ClipSet, EpochOrder, ProcessShare, build_loader
from tokenselect.training.distributed import Processes, Strategy, joined_processes, spread
from tokenselect.training.learner import Learner, WeightAverage
from tokenselect.training.loop import Trainer
from tokenselect.training.optimizer import LrSchedule, build_optimizer
from tokenselect.training.step import Precision


class TinyBlock(nn.Module):
    def __init__(self, channels: int) -> None:
        super().__init__()
        self.norm = nn.LayerNorm(channels)
        self.linear = nn.Linear(channels, channels)

    def forward(self, grid: TokenGrid) -> TokenGrid:
        return grid.with_tokens(grid.tokens + torch.tanh(self.linear(self.norm(grid.tokens))))


class TinyBackbone(nn.Module):
    """The backbone contract in a few hundred parameters."""

    def __init__(self, *, num_classes: int = 4, channels: int = 8, dropout: float = 0.0) -> None:
        super().__init__()
        self.patch = nn.Conv3d(3, channels, (2, 8, 8), stride=(2, 8, 8))
        self.blocks = nn.ModuleList(TinyBlock(channels) for _ in range(2))
        self.dropout = nn.Dropout(dropout)
        self.classifier = nn.Linear(channels, num_classes)

    def embed(self, video: Tensor) -> TokenGrid:
        return TokenGrid.from_patches(self.patch(video).permute(0, 2, 3, 4, 1))

    def head(self, grid: TokenGrid) -> Tensor:
        return self.classifier(self.dropout(grid.tokens.mean(dim=1)))

    def forward(self, video: Tensor) -> Tensor:
        grid = self.embed(video)
        for block in self.blocks:
            grid = block(grid)
        return self.head(grid)


class NoisyClips(Dataset[tuple[Tensor, int]]):
    """Clips that tell their class by brightness, with noise drawn afresh in each epoch."""

    def __init__(self, length: int = 24) -> None:
        self.length, self.epoch = length, 0

    def set_epoch(self, epoch: int) -> None:
        self.epoch = epoch

    def __len__(self) -> int:
        return self.length

    def __getitem__(self, index: int) -> tuple[Tensor, int]:
        label = index % 4
        noise = torch.randn(3, 4, 16, 24, generator=seeded_generator(self.epoch, index))
        return label + 0.5 * noise, label


def tiny_trainer(
    folder: Path,
    *,
    processes: Processes | None = None,
    epochs: int = 2,
    num_clips: int = 24,
    parts: int = 1,
    dropout: float = 0.3,
    ema: float | None = None,
    strategy: Strategy = "ddp",
    checkpoint_steps: int | None = 2,
    learner_class: type[Learner] = Learner,
) -> Trainer:
    """Build a run with 6 clips a step."""
    processes = processes or Processes()
    torch.manual_seed(0)
    model = spread(TinyBackbone(dropout=dropout), processes, strategy)
    data = NoisyClips(num_clips)
    order = EpochOrder(
        len(data), batch_size=6, seed=1, rank=processes.rank, processes=processes.count, parts=parts
    )
    steps = epochs * order.batches_per_epoch
    learner = learner_class(
        model=model,
        optimizer=build_optimizer(model, backbone_factor=1.0),
        precision=Precision("fp32", processes.device),
        lrs=LrSchedule(total_steps=steps, warmup_steps=1, peak=1e-2),
        processes=processes,
        average=WeightAverage(model, decay=ema) if ema else None,
        seed=1,
    )
    return Trainer(
        folder=folder,
        learner=learner,
        clips=ClipSet(data, default_collate, "abcd"),
        loader=build_loader(ClipSet(data, default_collate, "abcd"), order, workers=0),
        order=order,
        val_loader=DataLoader(
            ProcessShare(NoisyClips(9), rank=processes.rank, processes=processes.count), 3
        ),
        epochs=epochs,
        checkpoint_steps=checkpoint_steps,
    )


def losses_of(run: Path) -> list[float]:
    """Read the training losses that a run reported."""
    lines = map(json.loads, (run / "metrics.jsonl").read_text().splitlines())
    return [line["loss"] for line in lines if line["kind"] == "train"]


class MortalLearner(Learner):
    """Dies as by `kill -9` after step 4, which no checkpoint holds yet."""

    def learn(self, parts, step):
        report = super().learn(parts, step)
        if step == 4:
            os.kill(os.getpid(), signal.SIGKILL)
        return report


def main(folder: str, what: str) -> None:
    """Run in a process of its own: die half-way, or share a run with another process."""
    torch.set_num_threads(1)
    if what == "die":
        tiny_trainer(Path(folder), ema=0.9, learner_class=MortalLearner).run()
        return
    strategies: tuple[Strategy, ...] = ("ddp", "fsdp")
    with joined_processes("cpu") as processes:
        for strategy in strategies:
            run = Path(folder) / strategy
            tiny_trainer(run, processes=processes, dropout=0.0, strategy=strategy).run()


if __name__ == "__main__":
    main(*sys.argv[1:])
