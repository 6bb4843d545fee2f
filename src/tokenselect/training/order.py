"""The order of the data: it follows from (seed, epoch) alone, whatever the number of processes.

Every random number of a run is derived from where it is drawn, not from what was drawn before:
a sample's augmentation from (seed, epoch, draw, index), a step's dropout and noise from (seed,
step, rank). So a run that is killed and resumed continues exactly, with no state to restore.
"""

from __future__ import annotations

import random
from collections.abc import Iterator
from typing import Any

import numpy as np
import torch
from torch.utils.data import DataLoader, Dataset, Sampler

Key = tuple[int, int, int]  # epoch, number of the draw within the epoch, index


def derive_seed(*parts: int) -> int:
    """Mix whole numbers into one 63-bit seed; near neighbours give unrelated seeds."""
    state = np.random.SeedSequence(parts).generate_state(1, np.uint64)
    return int(state[0] >> np.uint64(1))


def seed_everything(seed: int) -> None:
    """Seed torch (all devices), numpy and random."""
    torch.manual_seed(seed)
    np.random.seed(seed % 2**32)
    random.seed(seed)


class ReproducibleSamples(Dataset[Any]):
    """A data set whose random draws depend on (seed, epoch, draw, index), in whichever worker."""

    def __init__(self, dataset: Dataset[Any], *, seed: int) -> None:
        self.dataset, self.seed = dataset, seed

    def __getitem__(self, key: Key) -> Any:
        with torch.random.fork_rng(devices=[]):
            seed_everything(derive_seed(self.seed, *key))
            return self.dataset[key[-1]]


class EpochOrder(Sampler[list[Key]]):
    """Batches of keys for one process: a new order each epoch, from any batch on.

    A global batch is cut between the processes in order, and each share into equal parts; the
    rest of the data that fills no batch sits out an epoch. Set `epoch` and `first_batch` before
    iterating.
    """

    def __init__(
        self,
        length: int,
        *,
        batch_size: int,
        seed: int,
        rank: int = 0,
        processes: int = 1,
        parts: int = 1,
        repeats: int = 1,
    ) -> None:
        """Check that the batch divides.

        Args:
            length: of the data set.
            batch_size: videos of a global batch, over all processes and parts.
            seed: of the run.
            rank: of this process.
            processes: how many there are.
            parts: how many parts a process's share is cut into (gradient accumulation).
            repeats: clips drawn from each video of a batch (repeated augmentation).
        """
        if batch_size % (processes * parts):
            raise ValueError(
                f"batch_size must be a multiple of processes × parts = {processes} × {parts}, "
                f"got {batch_size}"
            )
        if length < batch_size:
            raise ValueError(f"batch_size {batch_size} is larger than the data set ({length})")
        self.length, self.batch_size, self.seed = length, batch_size, seed
        self.rank, self.processes, self.parts, self.repeats = rank, processes, parts, repeats
        self.epoch = self.first_batch = 0

    @property
    def batches_per_epoch(self) -> int:
        """Count the optimizer steps of an epoch."""
        return self.length // self.batch_size

    def __len__(self) -> int:
        return (self.batches_per_epoch - self.first_batch) * self.parts

    def indices(self) -> list[int]:
        """Give the order of this epoch."""
        generator = torch.Generator().manual_seed(derive_seed(self.seed, self.epoch))
        return torch.randperm(self.length, generator=generator).tolist()

    def __iter__(self) -> Iterator[list[Key]]:
        order = self.indices()
        part = self.batch_size // (self.processes * self.parts)
        for batch in range(self.first_batch, self.batches_per_epoch):
            for number in range(self.parts):
                start = batch * self.batch_size + (self.rank * self.parts + number) * part
                yield [
                    (self.epoch, draw, index)
                    for index in order[start : start + part]
                    for draw in range(self.repeats)
                ]


def build_loader(
    dataset: Dataset[Any], order: EpochOrder, *, workers: int, pin_memory: bool = False
) -> DataLoader[Any]:
    """Build the loader of the training data; each item is one part of a batch."""
    return DataLoader(
        ReproducibleSamples(dataset, seed=order.seed),
        batch_sampler=order,
        num_workers=workers,
        persistent_workers=workers > 0,
        pin_memory=pin_memory,
        generator=torch.Generator().manual_seed(0),  # leaves the global generator alone
    )
