"""One optimizer step: loss, backward over the parts of a batch, clipping, update."""

import math
from collections.abc import Sequence
from contextlib import AbstractContextManager
from dataclasses import dataclass

import torch
import torch.nn.functional as F
from torch import Tensor, nn
from torch.optim import Optimizer

from tokenselect.ops.topk_hard import NonFiniteScoresError
from tokenselect.training.distributed import sum_over_processes, synchronizing

Part = tuple[Tensor, Tensor]  # clips and targets of one part of a batch


class NonFiniteError(ValueError):
    """Scores, loss, gradient or weights are NaN or infinite; nothing of that step is kept."""


@dataclass(frozen=True)
class StepReport:
    """What one step did, over all processes."""

    loss: float  # mean cross-entropy of the batch
    accuracy: float  # share of clips whose highest logit is the label, or the larger of two mixed
    gradient_norm: float  # before clipping
    num_clips: int  # clips of the batch


class Precision:
    """Autocast and loss scaling: "fp32" uses neither, "bf16" no scaling, "fp16" both."""

    def __init__(self, name: str, device: torch.device) -> None:
        dtypes = {"fp32": None, "bf16": torch.bfloat16, "fp16": torch.float16}
        if name not in dtypes:
            raise ValueError(f"precision must be one of {', '.join(dtypes)}, got {name!r}")
        self.device, self.dtype = device, dtypes[name]
        self.scaler = torch.amp.GradScaler(device.type, enabled=name == "fp16")

    def autocast(self) -> AbstractContextManager[object]:
        """Run the forward pass in the lower precision, if there is one."""
        return torch.autocast(self.device.type, self.dtype, enabled=self.dtype is not None)


def train_step(
    model: nn.Module,
    parts: Sequence[Part],
    optimizer: Optimizer,
    *,
    precision: Precision,
    clip_norm: float | None = 1.0,
) -> StepReport:
    """Take one step on this process's share of a batch, given as equal parts to save memory.

    The gradients of the parts add up to that of the batch. Targets are (b,) labels, or
    (b, classes) soft targets that sum to one.
    """
    optimizer.zero_grad(set_to_none=True)
    num_clips = sum(len(clips) for clips, _ in parts)
    totals = torch.zeros(3, device=precision.device)  # loss, correct, clips; MPS has no float64
    for number, (clips, targets) in enumerate(parts, start=1):
        with synchronizing(model, enabled=number == len(parts)):
            try:
                with precision.autocast():
                    logits = model(clips)
            except NonFiniteScoresError as error:  # of selectors: fails as a loss does that is NaN
                raise NonFiniteError(str(error)) from None
            loss = F.cross_entropy(logits.float(), targets)
            precision.scaler.scale(loss * (len(clips) / num_clips)).backward()
        labels = targets if targets.ndim == 1 else targets.argmax(dim=1)
        correct = (logits.detach().argmax(dim=1) == labels).sum()
        totals[:2] += torch.stack([loss.detach() * len(clips), correct])
    totals[2] = num_clips
    loss_sum, correct, count = sum_over_processes(totals).tolist()
    if not math.isfinite(loss_sum):
        raise NonFiniteError(f"loss is {loss_sum / count}")
    precision.scaler.unscale_(optimizer)
    norm = nn.utils.clip_grad_norm_(model.parameters(), clip_norm or float("inf"))
    size = float(norm.full_tensor() if hasattr(norm, "full_tensor") else norm)  # sharded models
    if not math.isfinite(size) and not precision.scaler.is_enabled():  # which skips such a step
        raise NonFiniteError(f"the gradient's norm is {size}")
    precision.scaler.step(optimizer)
    precision.scaler.update()
    return StepReport(loss_sum / count, correct / count, size, int(count))
