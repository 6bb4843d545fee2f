"""The speed-up of selection in onnxruntime, beside that in torch.

Claim: an exported model keeps the speed-up of its plan.

    PYTHONPATH=src:. python benchmarks/onnx_speed.py --save benchmarks/results/onnx_speed.md

Every plan is exported and compared with the model; then all take their turn in each round, one clip
at a time on one thread. Times are processor time, so that a busy machine does not blur them.
"""

from __future__ import annotations

import argparse
import platform
import statistics
import tempfile
import time
from collections.abc import Callable
from functools import partial
from pathlib import Path

import onnxruntime
import torch
from torch import nn

from tokenselect.export import OnnxModel, compare_logits
from tokenselect.export.formats import export_program
from tokenselect.measure.cost import count_macs
from tokenselect.models import create_model


def build(model: str, plan: str) -> nn.Module:
    """Build a model with random weights, the same backbone under every plan."""
    torch.manual_seed(0)
    return create_model(model, plan=plan).eval()


def time_in_turns(tasks: dict[str, Callable[[], object]], repeats: int) -> dict[str, float]:
    """Give each task's median processor time in milliseconds; the first round warms up."""
    spent: dict[str, list[float]] = {name: [] for name in tasks}
    for turn in range(repeats + 1):
        for name, task in tasks.items():
            start = time.process_time()
            task()
            if turn:
                spent[name].append(1e3 * (time.process_time() - start))
    return {name: statistics.median(values) for name, values in spent.items()}


def measure(model: str, plans: list[str], repeats: int) -> list[list[str]]:
    """Export, compare and time each plan; the first is what the others are compared with."""
    models = {plan: build(model, plan) for plan in plans}
    shape = (1, 3, *models[plans[0]].default_input)
    clip = torch.randn(shape)
    exported, apart = {}, {}
    with tempfile.TemporaryDirectory() as folder, torch.inference_mode():
        for plan, built in models.items():
            path = Path(folder) / f"{plan}.onnx"
            OnnxModel.write(export_program(built), path, metadata={})
            exported[plan] = OnnxModel(path, threads=1)
            apart[plan] = compare_logits(built, exported[plan]).largest
            print(f"{plan}: exported, logits differ by {apart[plan]:.1e}", flush=True)
        onnx = time_in_turns({p: partial(exported[p], clip) for p in plans}, repeats)
        ours = time_in_turns({p: partial(models[p], clip) for p in plans}, repeats)
    first = plans[0]
    return [
        [
            model,
            plan,
            f"{count_macs(models[plan], *shape).gmacs:.1f}",
            f"{onnx[plan]:.0f}",
            f"{onnx[first] / onnx[plan]:.2f}",
            f"{ours[plan]:.0f}",
            f"{ours[first] / ours[plan]:.2f}",
            f"{apart[plan]:.1e}",
        ]
        for plan in plans
    ]


def main() -> None:
    """Measure and print a table."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--model", default="mvit_b16")
    parser.add_argument("--plans", nargs="+", default=["dense", "T0_0.6-S4_0.9", "T0_0.4-S4_0.6"])
    parser.add_argument("--repeats", type=int, default=3)
    parser.add_argument("--save", type=Path)
    options = parser.parse_args()
    torch.set_num_threads(1)
    rows = measure(options.model, options.plans, options.repeats)
    columns = [
        "model",
        "plan",
        "GMACs",
        "onnxruntime ms",
        "× dense",
        "torch ms",
        "× dense",
        "logits",
    ]
    lines = [f"| {' | '.join(row)} |" for row in (columns, ["---"] * len(columns), *rows)]
    command = f"python benchmarks/onnx_speed.py --model {options.model}"
    machine = f"{platform.machine()}, one thread, processor time, torch {torch.__version__}"
    text = [
        "# Speed of exported models",
        f"`{command} --plans {' '.join(options.plans)} --repeats {options.repeats}`",
        f"{machine}, onnxruntime {onnxruntime.__version__}",
        "\n".join(lines),
    ]
    report = "\n\n".join(text) + "\n"
    print(report)
    if options.save is not None:
        options.save.write_text(report)


if __name__ == "__main__":
    main()
