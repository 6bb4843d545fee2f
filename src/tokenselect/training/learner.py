"""What learns: a model, its optimizer and the schedules that move with the steps."""

from collections.abc import Callable, Iterable, Iterator, Sequence
from contextlib import AbstractContextManager, contextmanager, nullcontext
from dataclasses import dataclass, field
from functools import partial
from typing import Any, Self

import torch
from torch import Tensor, nn
from torch.distributed.checkpoint import state_dict as states
from torch.optim import AdamW

from tokenselect.data import seeded_generator
from tokenselect.insertion import set_plan, set_sigma
from tokenselect.measure.accuracy import count_answers
from tokenselect.plan import SelectionPlan, Site
from tokenselect.training.distributed import Processes, bare_model, sum_over_processes
from tokenselect.training.optimizer import LrSchedule, SigmaSchedule, set_lr
from tokenselect.training.probation import Probation
from tokenselect.training.step import Part, Precision, StepReport, train_step

ANY = "any"
DEFAULT = (
    *("T0_0.9", "T0_0.8", "T0_0.6", "T0_0.4", "T0_0.9-S4_0.9", "T0_0.8-S4_0.8"),
    *("T0_0.6-S4_0.9", "T0_0.6-S4_0.6", "T0_0.4-S4_0.6"),
)
DRAW = 0x6275646765  # sets these draws apart from all others of a step
WHOLE = states.StateDictOptions(full_state_dict=True, cpu_offload=True)


class WeightAverage:
    """Exponential moving average of a model's parameters (buffers are taken as they are)."""

    def __init__(self, model: nn.Module, *, decay: float) -> None:
        if not 0 < decay < 1:
            raise ValueError(f"decay must be in (0, 1), got {decay}")
        self.decay = decay
        self.weights = {name: own.detach().clone() for name, own in model.named_parameters()}

    @torch.no_grad()
    def update(self, model: nn.Module, step: int) -> None:
        """Move towards the weights after step `step`; early steps count for more."""
        decay = min(self.decay, (1 + step) / (10 + step))
        for name, parameter in model.named_parameters():
            self.weights[name].lerp_(parameter.detach(), 1 - decay)

    @contextmanager
    def applied(self, model: nn.Module) -> Iterator[None]:
        """Let `model` hold the average for a while."""
        self._swap(model)
        try:
            yield
        finally:
            self._swap(model)

    @torch.no_grad()
    def _swap(self, model: nn.Module) -> None:
        for name, parameter in model.named_parameters():
            own = parameter.detach().clone()
            parameter.copy_(self.weights[name])
            self.weights[name].copy_(own)


@dataclass(frozen=True)
class Budgets:
    """The plans that training draws from."""

    plans: tuple[SelectionPlan, ...]  # at least one; the first is also the one that is validated

    @classmethod
    def of(cls, plans: Sequence[str]) -> Self:
        """Read plans; none stands for `DEFAULT`."""
        return cls(tuple(SelectionPlan.parse(plan) for plan in plans or DEFAULT))

    @property
    def whole(self) -> SelectionPlan:
        """Every site of any plan, with what the first plan that has it keeps there."""
        sites: dict[str, Site] = {}
        for plan in self.plans:
            for site in plan:
                sites.setdefault(site.label, site)
        return SelectionPlan(tuple(sites.values()))

    def at(self, seed: int, step: int) -> SelectionPlan:
        """Draw the plan of a step: it follows from seed and step, the same in all processes."""
        generator = seeded_generator(seed, step, DRAW)
        return self.plans[int(torch.randint(len(self.plans), (), generator=generator))]


@dataclass(kw_only=True)
class Learner:
    """Takes numbered steps; a step depends on its number, its batch and the state, nothing else."""

    model: nn.Module  # on the device, wrapped for the processes
    optimizer: AdamW  # over the model's parameters
    precision: Precision  # autocast and loss scaling
    lrs: LrSchedule  # learning rate of each step
    processes: Processes = field(default_factory=Processes)  # this process's place
    sigmas: SigmaSchedule | None = None  # noise of the selection; None where nothing is selected
    budgets: Budgets | None = None  # plans to draw from at each step, or None where the plan stays
    mix: Callable[..., Part] | None = None  # blends clips and their labels, as `mix_clips` does
    clip_norm: float | None = 1.0  # largest norm of the gradient; None clips nothing
    average: WeightAverage | None = None  # running average of the weights, or None
    probation: Probation | None = None  # of selectors that were taught
    seed: int = 0  # of the run

    def learn(self, parts: Sequence[Part], step: int) -> StepReport:
        """Take step `step`, counted from 0, on this process's parts of a batch."""
        torch.manual_seed(seeded_generator(self.seed, step, self.processes.rank).initial_seed())
        set_lr(self.optimizer, self.lrs.at(step))
        if self.sigmas is not None:
            set_sigma(self.model, self.sigmas.at(step))
        if self.budgets is not None:
            set_plan(bare_model(self.model), self.budgets.at(self.seed, step))
        self.model.train()
        ready = [self.prepare(clips, targets) for clips, targets in parts]
        take = partial(train_step, precision=self.precision, clip_norm=self.clip_norm)
        with self.probation.turn(step) if self.probation else nullcontext():
            report = take(self.model, ready, self.optimizer)
        if self.average is not None:
            self.average.update(self.model, step)
        return report

    def look_back(self, step: int, tell: Callable[[str], object]) -> None:
        """Choose between taught and even selection, or teach again, if that is due."""
        if self.probation is None or not self.probation.is_due(step):
            return
        if self.budgets is not None:
            set_plan(bare_model(self.model), self.budgets.whole)
        with torch.compiler.set_stance("force_eager"):  # choices that are tried change the code
            self.probation.look_back(step, tell)
        if self.average is not None:  # of selectors as they were
            self.average = WeightAverage(self.model, decay=self.average.decay)

    def prepare(self, clips: Tensor, targets: Tensor) -> Part:
        """Move a part to the device and blend its clips."""
        device = self.precision.device
        clips, targets = clips.to(device, non_blocking=True), targets.to(device, non_blocking=True)
        if self.mix is None:
            return clips, targets
        drawn = int(torch.randint(2**62, ()))  # follows from the step's seed
        return self.mix(clips, targets, generator=seeded_generator(drawn))

    def validate(self, batches: Iterable[Part], *, num_classes: int) -> dict[str, float]:
        """Test the weights that `weights` gives; each process brings its share of the batches."""
        model = bare_model(self.model)
        if self.budgets is not None:
            set_plan(model, self.budgets.plans[0])
        device, autocast = self.processes.device, self.precision.autocast
        with self.averaged():
            counter, _ = count_answers(
                model, batches, num_classes=num_classes, device=device, autocast=autocast
            )
        sum_over_processes(counter.counts)
        accuracy = counter.result()
        return {"top1": accuracy.top1, "top5": accuracy.top5}

    def figures(self, step: int) -> dict[str, float]:
        """Give the learning rate and σ of a step."""
        figures = {"lr": self.lrs.at(step)}
        return figures | ({"sigma": self.sigmas.at(step)} if self.sigmas is not None else {})

    def weights(self) -> dict[str, Tensor]:
        """Give the weights to test and keep: the average where there is one, else the last.

        All processes must call this and `state`; the names are those of the unwrapped model.
        """
        with self.averaged():
            return self._raw_weights()

    def state(self) -> dict[str, Any]:
        """Give what is needed beside `weights` to go on exactly."""
        return {
            "optimizer": states.get_optimizer_state_dict(self.model, self.optimizer, options=WHOLE),
            "scaler": self.precision.scaler.state_dict(),
            "raw": self._raw_weights() if self.average is not None else None,
            "is_on_probation": self.probation is not None,
        }

    def restore(self, weights: dict[str, Any], state: dict[str, Any]) -> None:
        """Take over what `weights` and `state` gave."""
        states.set_model_state_dict(self.model, weights, options=WHOLE)
        self.probation = self.probation if state.get("is_on_probation") else None
        if self.average is not None:
            self.average = WeightAverage(self.model, decay=self.average.decay)
            states.set_model_state_dict(self.model, state["raw"], options=WHOLE)
        # a selector that no step has used yet has no state, which torch 2.8 asks for
        unused: dict[str, Any] = {name: {} for name, _ in bare_model(self.model).named_parameters()}
        found = {**state["optimizer"], "state": unused | state["optimizer"]["state"]}
        states.set_optimizer_state_dict(self.model, self.optimizer, found, options=WHOLE)
        self.precision.scaler.load_state_dict(state["scaler"])

    def find_non_finite(self) -> str | None:
        """Name a parameter that holds NaN or an infinity, if there is one."""
        for name, parameter in bare_model(self.model).named_parameters():
            values = parameter.detach()
            values = values.to_local() if hasattr(values, "to_local") else values  # sharded models
            if not bool(values.isfinite().all()):
                return name
        return None

    def averaged(self) -> AbstractContextManager[object]:
        """Let the model hold the averaged weights for a while, if there are any."""
        return nullcontext() if self.average is None else self.average.applied(self.model)

    def _raw_weights(self) -> dict[str, Tensor]:
        found: dict[str, Any] = states.get_model_state_dict(self.model, options=WHOLE)
        return {name: value.clone() for name, value in found.items()}
