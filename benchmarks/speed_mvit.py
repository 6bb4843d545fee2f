"""MViT against torchvision's, against its own multiply-adds, and against the machine's limit.

Claims: dense MViT-B16 at least 1.4 × as fast as torchvision's `mvit_v1_b` at batch 1 and 1.5 × at
batch 4, in less memory; saved multiply-adds become saved seconds (0.97 of them, or more); a
training step gets at least 1.4 × faster when 3 of 8 frames go.

    PYTHONPATH=src:. python benchmarks/speed_mvit.py --save benchmarks/results/speed_mvit.md

All that is compared runs in one process, in turns; figures are medians, ratios are medians of the
rounds' ratios. On a busy machine `--threads 1 --clock cpu` counts processor time instead.
"""

import argparse
import os
import platform
import resource
import statistics
import subprocess
import sys
import time
from collections.abc import Callable
from pathlib import Path

import torch
import torch.nn.functional as F
from torch import nn

from benchmarks.torchvision_import import import_torchvision
from tokenselect import create_model
from tokenselect.backbones.mvit import MViT, from_torchvision, mvit_b16
from tokenselect.profiling import count_macs

CLOCKS = {"wall": time.perf_counter, "cpu": time.process_time}
PLANS = ["T0_0.6", "T0_0.6-S4_0.9", "S4_0.3", "T0_0.8-S0_0.7"]
Tasks = dict[str, Callable[[], object]]


class Stopwatch:
    """Times tasks in turns."""

    def __init__(self, clock: str, rounds: int) -> None:
        self.clock, self.rounds = CLOCKS[clock], rounds

    def measure(self, tasks: Tasks) -> dict[str, tuple[float, float]]:
        """Return each task's median seconds and how many times faster than the first it is."""
        times: dict[str, list[float]] = {name: [] for name in tasks}
        for turn in range(self.rounds + 1):
            for name, task in tasks.items():
                start = self.clock()
                task()
                if turn:
                    times[name].append(self.clock() - start)
        first = next(iter(times.values()))
        return {
            name: (
                statistics.median(values),
                statistics.median(a / b for a, b in zip(first, values, strict=True)),
            )
            for name, values in times.items()
        }


def make_torchvision() -> nn.Module:
    """Build torchvision's model."""
    return import_torchvision("torchvision.models.video").mvit_v1_b().eval()


def make_ours(theirs: nn.Module) -> MViT:
    """Build our model with the weights of torchvision's."""
    model = mvit_b16().eval()
    model.load_state_dict(from_torchvision(theirs.state_dict()))
    return model


def run(model: nn.Module, video: torch.Tensor) -> Callable[[], object]:
    """Return a task that runs the model without gradients."""

    def task() -> None:
        with torch.inference_mode():
            model(video)

    return task


def compare_dense(watch: Stopwatch, batches: list[int]) -> list[str]:
    """Compare with torchvision, same weights, and with the rate of plain matrix products."""
    theirs = make_torchvision()
    ours = make_ours(theirs)
    left, right = torch.randn(3136, 384), torch.randn(384, 1536)
    rows = [
        "| batch | model | s | × torchvision | GMACs/s | of matrix product |",
        "|" + " --- |" * 6,
    ]
    for batch in batches:
        video = torch.randn(batch, 3, 16, 224, 224)
        tasks: Tasks = {"torchvision": run(theirs, video), "tokenselect": run(ours, video)}
        tasks["matrix product"] = lambda: [left @ right for _ in range(20)]
        found = watch.measure(tasks)
        limit = 20 * 3136 * 384 * 1536 / found.pop("matrix product")[0] / 1e9
        for name, (seconds, ratio) in found.items():
            rate = batch * 70.6 / seconds
            rows.append(
                f"| {batch} | {name} | {seconds:.3f} | {ratio:.2f} | {rate:.1f} "
                f"| {rate / limit:.0%} |"
            )
            print(rows[-1], flush=True)
    return rows


def compare_plans(watch: Stopwatch, batches: list[int]) -> list[str]:
    """Compare what plans save in multiply-adds and in time."""
    dense = mvit_b16().eval()
    models = {"dense": dense}
    for plan in PLANS:
        models[plan] = create_model("mvit_b16", plan=plan).eval()
        models[plan].load_state_dict(dense.state_dict(), strict=False)
    macs = {name: count_macs(model, 1, 3, 16, 224, 224).gmacs for name, model in models.items()}
    rows = ["| batch | plan | GMACs | s | speed-up | of that by GMACs |", "|" + " --- |" * 6]
    for batch in batches:
        video = torch.randn(batch, 3, 16, 224, 224)
        found = watch.measure({name: run(model, video) for name, model in models.items()})
        for name, (seconds, ratio) in found.items():
            share = ratio / (macs["dense"] / macs[name])
            rows.append(
                f"| {batch} | {name} | {macs[name]:.1f} | {seconds:.3f} | {ratio:.2f} "
                f"| {share:.2f} |"
            )
            print(rows[-1], flush=True)
    return rows


def training_step(model: nn.Module, batch: int) -> Callable[[], object]:
    """Return a task: forward, backward and a step of AdamW."""
    optimizer = torch.optim.AdamW(model.parameters(), fused=True)
    video = torch.randn(batch, 3, *model.default_input)
    labels = torch.randint(0, 400, (batch,))

    def task() -> None:
        optimizer.zero_grad()
        F.cross_entropy(model(video), labels).backward()
        optimizer.step()

    return task


def compare_training(watch: Stopwatch, batches: list[int]) -> list[str]:
    """Compare training steps, dense and with frames selected; torchvision's for the base model."""
    rows = ["| model | batch | s a step | speed-up |", "|" + " --- |" * 4]
    for name, batch in (("mvit_mini", 16), ("mvit_b16", 1)):
        tasks = {f"{name}": training_step(create_model(name).train(), batch)}
        tasks[f"{name} T0_0.6"] = training_step(create_model(name, plan="T0_0.6").train(), batch)
        if name == "mvit_b16":
            theirs = make_torchvision().train()
            theirs.default_input = (16, 224, 224)
            tasks["torchvision"] = training_step(theirs, batch)
        for label, (seconds, ratio) in watch.measure(tasks).items():
            rows.append(f"| {label} | {batch} | {seconds:.3f} | {ratio:.2f} |")
            print(rows[-1], flush=True)
    return rows


def compare_sizes(watch: Stopwatch, batches: list[int]) -> list[str]:
    """Show how time grows with frames and size, and how much of it is products."""
    model = mvit_b16().eval()
    rows = ["| frames | size | GMACs | s | GMACs/s |", "|" + " --- |" * 5]
    shapes = [(8, 224), (16, 224), (32, 224), (16, 112), (16, 320)]
    macs = {shape: count_macs(model, 1, 3, shape[0], shape[1], shape[1]).gmacs for shape in shapes}
    tasks = {
        str(shape): run(model, torch.randn(1, 3, shape[0], shape[1], shape[1])) for shape in shapes
    }
    found = watch.measure(tasks)
    for shape in shapes:
        seconds = found[str(shape)][0]
        rows.append(
            f"| {shape[0]} | {shape[1]} | {macs[shape]:.1f} | {seconds:.3f} "
            f"| {macs[shape] / seconds:.1f} |"
        )
        print(rows[-1], flush=True)
    return rows


def compare_memory(watch: Stopwatch, batches: list[int]) -> list[str]:
    """Compare what a process needs at its peak beyond what it held before the first clip."""
    rows = ["| batch | model | peak MB |", "|" + " --- |" * 3]
    for batch in batches:
        for name in ("torchvision", "tokenselect"):
            command = [sys.executable, __file__, "--peak", name, "--batches", str(batch)]
            shown = subprocess.run(command, check=True, capture_output=True, text=True).stdout
            rows.append(f"| {batch} | {name} | {float(shown):.0f} |")
            print(rows[-1], flush=True)
    return rows


def measure_peak(name: str, batch: int) -> float:
    """Return the megabytes that one forward adds to this process's peak."""
    theirs = make_torchvision()
    model = theirs if name == "torchvision" else make_ours(theirs)
    task = run(model, torch.randn(batch, 3, 16, 224, 224))
    before = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
    task()
    return (resource.getrusage(resource.RUSAGE_SELF).ru_maxrss - before) / 1024


PARTS = {
    "dense": ("Beside torchvision", compare_dense),
    "plans": ("Saved multiply-adds and saved time", compare_plans),
    "training": ("Training steps", compare_training),
    "sizes": ("Frames and sizes", compare_sizes),
    "memory": ("Peak memory of a forward", compare_memory),
}


def main() -> None:
    """Measure, print and, if asked, save."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--only", nargs="+", choices=PARTS, default=list(PARTS))
    parser.add_argument("--batches", nargs="+", type=int, default=[1, 4])
    parser.add_argument("--rounds", type=int, default=7)
    parser.add_argument("--threads", type=int, default=2)
    parser.add_argument("--clock", choices=CLOCKS, default="wall")
    parser.add_argument("--peak", choices=["torchvision", "tokenselect"], help=argparse.SUPPRESS)
    parser.add_argument("--save", type=Path)
    arguments = parser.parse_args()
    torch.set_num_threads(arguments.threads)
    if arguments.peak:
        print(measure_peak(arguments.peak, arguments.batches[0]))
        return
    watch = Stopwatch(arguments.clock, arguments.rounds)
    lines = ["# Speed of MViT-B16", "", f"`python {' '.join(sys.argv)}`", ""]
    lines += [f"{platform.machine()}, torch {torch.__version__}, {arguments.threads} threads, "]
    lines[-1] += f"{arguments.clock} time, load {os.getloadavg()[0]:.1f} at the start"
    for part in arguments.only:
        title, compare = PARTS[part]
        print(title, flush=True)
        lines += ["", f"## {title}", "", *compare(watch, arguments.batches)]
    if arguments.save:
        arguments.save.parent.mkdir(parents=True, exist_ok=True)
        arguments.save.write_text("\n".join(lines) + "\n")


if __name__ == "__main__":
    main()
