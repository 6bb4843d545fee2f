"""The order of the data: it follows from (seed, epoch) alone, whatever the number of processes.

Every random number of a run is derived from where it is drawn, not from what was drawn before: a
sample's augmentation from (seed, epoch, index), a step's dropout and noise from (seed, step,
rank). So a run that is killed and resumed continues exactly, with no state to restore.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import Any

import torch
from torch.utils.data import DataLoader, Dataset, Sampler

from tokenselect.data import NO_LABEL, Example, seeded_generator


def seed_step(seed: int, step: int, rank: int) -> None:
    """Seed torch, on all devices, for one step of one process."""
    torch.manual_seed(seeded_generator(seed, step, rank).initial_seed())


class EpochOrder(Sampler[list[int]]):
    """Batches of indices for one process: a new order each epoch, from any batch on.

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
    ) -> None:
        """Check that the batch divides.

        Args:
            length: of the data set.
            batch_size: videos of a global batch, over all processes and parts.
            seed: of the run.
            rank: of this process.
            processes: how many there are.
            parts: how many parts a process's share is cut into (gradient accumulation).
        """
        if batch_size % (processes * parts):
            raise ValueError(
                f"batch_size must be a multiple of processes × parts = {processes} × {parts}, "
                f"got {batch_size}"
            )
        if length < batch_size:
            raise ValueError(f"batch_size {batch_size} is larger than the data set ({length})")
        self.length, self.batch_size, self.seed = length, batch_size, seed
        self.rank, self.processes, self.parts = rank, processes, parts
        self.epoch = self.first_batch = 0

    @property
    def batches_per_epoch(self) -> int:
        """Count the optimizer steps of an epoch."""
        return self.length // self.batch_size

    def __len__(self) -> int:
        return (self.batches_per_epoch - self.first_batch) * self.parts

    def indices(self) -> list[int]:
        """Give the order of this epoch."""
        return torch.randperm(
            self.length, generator=seeded_generator(self.seed, self.epoch)
        ).tolist()

    def __iter__(self) -> Iterator[list[int]]:
        order = self.indices()
        part = self.batch_size // (self.processes * self.parts)
        for batch in range(self.first_batch, self.batches_per_epoch):
            for number in range(self.parts):
                start = batch * self.batch_size + (self.rank * self.parts + number) * part
                yield order[start : start + part]


class ProcessShare(Dataset[Any]):
    """Every `processes`-th item of a data set, from number `rank` on.

    All processes get equally many, as sharded models need: where the data run out, the first item
    comes again without a label, and no count takes it.
    """

    def __init__(self, dataset: Dataset[Any], *, rank: int, processes: int) -> None:
        self.dataset, self.rank, self.processes = dataset, rank, processes
        self.total: int = len(dataset)  # type: ignore[arg-type]

    def __len__(self) -> int:
        return -(-self.total // self.processes)

    def __getitem__(self, index: int) -> Any:
        if not 0 <= index < len(self):
            raise IndexError(f"index must be in [0, {len(self)}), got {index}")
        place = self.rank + index * self.processes
        if place < self.total:
            return self.dataset[place]
        first = self.dataset[0]
        return Example(first[0], NO_LABEL) if isinstance(first, Example) else (first[0], NO_LABEL)


def build_loader(
    dataset: Dataset[Any],
    order: EpochOrder,
    *,
    workers: int,
    collate: Callable[[list[Any]], Any] | None = None,
    pin_memory: bool = False,
) -> DataLoader[Any]:
    """Build the loader of the training data; each item is one part of a batch."""
    return DataLoader(
        dataset,
        batch_sampler=order,
        num_workers=workers,
        persistent_workers=workers > 0,
        collate_fn=collate,
        pin_memory=pin_memory,
        generator=torch.Generator().manual_seed(0),  # leaves the global generator alone
    )
