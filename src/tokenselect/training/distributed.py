"""One process or many: torch's own launcher, DDP and FSDP2, with the single process as a case."""

import os
from collections.abc import Iterator
from contextlib import AbstractContextManager, contextmanager, nullcontext
from dataclasses import dataclass, field
from typing import Literal

import torch
import torch.distributed as dist
from torch import Tensor, nn
from torch.distributed.fsdp import FSDPModule, fully_shard
from torch.nn.parallel import DistributedDataParallel
from torch.utils._pytree import SUPPORTED_NODES, register_dataclass

from tokenselect.grid import TokenGrid
from tokenselect.insertion import selectors_of

Strategy = Literal["ddp", "fsdp"]


@dataclass(frozen=True, kw_only=True)
class Processes:
    """This process's place among all: `rank` of `count`, on `device`."""

    rank: int = 0
    count: int = 1
    device: torch.device = field(default_factory=lambda: torch.device("cpu"))

    @property
    def is_main(self) -> bool:
        """Tell whether this process prints and writes."""
        return self.rank == 0


def choose_device(name: str | None = None, local_rank: int = 0) -> torch.device:
    """Find the device of this process, and try it; None takes the accelerator if there is one."""
    if name is None:
        found = torch.accelerator.current_accelerator(check_available=True)
        name = "cpu" if found is None else found.type
    try:
        device = torch.device(name)
        torch.empty(1, device=device).cpu()
    except (RuntimeError, AssertionError, ImportError) as error:
        reason = next(iter(str(error).splitlines()), "")
        raise ValueError(f"device must be one of this machine, got {name!r}: {reason}") from None
    return torch.device("cuda", local_rank) if name == "cuda" else device


@contextmanager
def joined_processes(device: str | None = None) -> Iterator[Processes]:
    """Join the group that `torchrun` started, if it did, and leave it at the end."""
    if "RANK" not in os.environ:
        yield Processes(device=choose_device(device))
        return
    local_rank = int(os.environ["LOCAL_RANK"])
    place = choose_device(device, local_rank)
    if place.type == "cuda":
        torch.cuda.set_device(place)
    dist.init_process_group("nccl" if place.type == "cuda" else "gloo")
    try:
        yield Processes(rank=dist.get_rank(), count=dist.get_world_size(), device=place)
    finally:
        dist.destroy_process_group()


def spread(model: nn.Module, processes: Processes, strategy: Strategy) -> nn.Module:
    """Wrap a model for training: "ddp" copies it to each process, "fsdp" shards it."""
    if strategy == "fsdp" and dist.is_initialized():
        if TokenGrid not in SUPPORTED_NODES:  # FSDP of torch 2.8 sees no tensors in dataclasses
            register_dataclass(TokenGrid)
        for block in model.blocks:  # type: ignore[union-attr]
            fully_shard(block)
        fully_shard(model)
        return model
    if processes.count == 1:
        return model
    # At σ = 0, and for random selection, a scorer gets no gradient.
    return DistributedDataParallel(model, find_unused_parameters=selectors_of(model) is not None)


def bare_model(model: nn.Module) -> nn.Module:
    """Give the model that `spread` wrapped."""
    return model.module if isinstance(model, DistributedDataParallel) else model


def synchronizing(model: nn.Module, *, enabled: bool) -> AbstractContextManager[object]:
    """Exchange gradients between processes in this backward pass only if `enabled`."""
    if isinstance(model, FSDPModule):
        model.set_requires_gradient_sync(enabled)
    if isinstance(model, DistributedDataParallel) and not enabled:
        return model.no_sync()
    return nullcontext()


def sum_over_processes(values: Tensor) -> Tensor:
    """Add `values` up over all processes, in place."""
    if dist.is_initialized():
        dist.all_reduce(values)
    return values


def main_process_says(claim: bool) -> bool:
    """Give every process the main one's answer, so that all take the same way."""
    if not dist.is_initialized():
        return claim
    device = "cuda" if dist.get_backend() == "nccl" else "cpu"
    answer = torch.tensor(int(claim), device=device)
    dist.broadcast(answer, src=0)
    return bool(answer)


def wait_for_all() -> None:
    """Return when every process has come here."""
    if dist.is_initialized():
        dist.barrier()
