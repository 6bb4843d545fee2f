"""The optimizer, and what changes from step to step: learning rate and σ."""

import math
from dataclasses import dataclass
from typing import Any

from torch import nn
from torch.optim import AdamW

from tokenselect.plan import SELECTORS

TABLES = ("position", "pos_embed", "pos_encoding", "bias_table", "class_token", "cls_token")


@dataclass(frozen=True, kw_only=True)
class SigmaSchedule:
    """Noise of the perturbed top-k: `start` at step 0, falling in a line to 0.

    It gets there after the share `end` of `total_steps`; behind it the weights learn from the hard
    selection that they will see.
    """

    total_steps: int
    start: float = 0.1  # paper, section 4.1
    end: float = 1.0

    def __post_init__(self) -> None:
        if not 0 < self.end <= 1:
            raise ValueError(f"end must be in (0, 1], got {self.end}")

    def at(self, step: int) -> float:
        """Give σ during step `step`, counted from 0."""
        return self.start * max(0.0, 1 - step / (self.end * self.total_steps))


@dataclass(frozen=True, kw_only=True)
class LrSchedule:
    """Learning rate: a line from `warmup_start` to `peak`, then half a cosine down to `end`."""

    total_steps: int
    warmup_steps: int
    peak: float
    warmup_start: float = 0.0
    end: float = 0.0

    def at(self, step: int) -> float:
        """Give the learning rate of step `step`, counted from 0."""
        if step < self.warmup_steps:
            return self.warmup_start + (self.peak - self.warmup_start) * step / self.warmup_steps
        falling = max(self.total_steps - self.warmup_steps, 1)
        done = min((step - self.warmup_steps) / falling, 1.0)
        return self.end + (self.peak - self.end) * 0.5 * (1 + math.cos(math.pi * done))


def build_optimizer(
    model: nn.Module,
    *,
    weight_decay: float = 0.05,
    backbone_factor: float = 0.01,
    selector_factor: float = 1.0,
) -> AdamW:
    """Build AdamW; parameters are in at most four groups, by learning rate and weight decay.

    A "factor" multiplies the learning rate, which `set_lr` sets before each step. Vectors, biases,
    norms and learned tables do not decay, nor what a model's `no_weight_decay_names` gives.
    """
    groups: dict[tuple[bool, bool], dict[str, Any]] = {}
    spared = set(getattr(model, "no_weight_decay_names", set)())
    for name, parameter in model.named_parameters():
        if not parameter.requires_grad:
            continue
        is_selector = name.startswith(SELECTORS)
        is_table = any(word in name for word in TABLES)
        is_spared = is_table or name in spared or name.endswith(".bias")
        decays = parameter.ndim > 1 and not is_spared
        factor = selector_factor if is_selector else backbone_factor
        group = {"params": [], "factor": factor, "weight_decay": weight_decay if decays else 0.0}
        groups.setdefault((is_selector, decays), group)["params"].append(parameter)
    if not groups:
        raise ValueError("the model has no parameter to train")
    # fused: one pass over all parameters, which matters where they are small and many
    return AdamW(list(groups.values()), lr=0.0, fused=True)


def set_lr(optimizer: AdamW, lr: float) -> None:
    """Set the learning rate; each group's follows by its factor."""
    for group in optimizer.param_groups:
        group["lr"] = lr * group["factor"]
