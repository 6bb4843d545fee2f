"""Speed on this machine: ours against torchvision, selected against dense, and how cost grows.

Everything is a ratio of things timed in turns in one process. Finished parts stay in the results'
file, so parts can be run one by one:

    python -m benchmarks.speed                          # all parts, some twenty quiet minutes
    python -m benchmarks.speed --parts dense selected
"""

import argparse
import json
import os
import resource
import subprocess
import sys
import time
from collections.abc import Callable
from functools import partial
from pathlib import Path
from typing import Any

import torch
import torch.nn.functional as F
from rich.console import Console
from rich.table import Table
from torch import Tensor, nn

from benchmarks.torchvision_import import import_torchvision
from tokenselect import create_model
from tokenselect.backbones import mvit, video_swin
from tokenselect.profiling import count_macs, measure_latency

RESULTS = Path(__file__).parent / "results"
PAIRS: dict[str, tuple[str, Callable[..., Any]]] = {  # ours: torchvision's, weights over
    "mvit_b16": ("mvit_v1_b", mvit.from_torchvision),
    "video_swin_b": ("swin3d_b", video_swin.from_torchvision),
}
SELECTED = (
    ("mvit_b16", "T0_0.6-S4_0.9", (1, 4)),
    ("mvit_b16", "T0_0.6", (1, 4)),
    ("mvit_b16", "S4_0.3", (1, 4)),
    ("video_swin_b", "T0_0.6", (1,)),
)
Row = dict[str, Any]


def clip_for(model: nn.Module, batch: int = 1) -> Tensor:
    """Make a random batch of the model's own input size."""
    return torch.randn(batch, 3, *model.default_input)


def time_forwards(models: dict[str, nn.Module], video: Tensor, repeats: int) -> dict[str, float]:
    """Time one forward of each, in turns: median seconds."""
    with torch.inference_mode():
        return measure_latency({n: partial(m, video) for n, m in models.items()}, repeats=repeats)


def build_torchvision(name: str) -> nn.Module:
    """Build torchvision's model of the same architecture as ours."""
    models = import_torchvision("torchvision.models.video")
    return getattr(models, PAIRS[name][0])().eval()


def measure_dense(repeats: int) -> list[Row]:
    """Compare our dense models with torchvision's, same weights, logits checked to 1e-4."""
    rows = []
    for name, batch in (("mvit_b16", 1), ("mvit_b16", 4), ("video_swin_b", 1)):
        theirs, ours = build_torchvision(name), create_model(name).eval()
        ours.load_state_dict(PAIRS[name][1](theirs.state_dict()))
        video = clip_for(ours, batch)
        with torch.inference_mode():
            gap = (ours(video) - theirs(video)).abs().max().item()
        assert gap < 1e-4, f"logits differ by {gap}"
        seconds = time_forwards({"ours": ours, "torchvision": theirs}, video, repeats)
        ratio = seconds["torchvision"] / seconds["ours"]
        rows.append({"model": name, "batch": batch, "speed-up": ratio, **seconds})
    return rows


def measure_selected(repeats: int) -> list[Row]:
    """Compare selected models with dense ones: seconds saved against multiply-adds saved."""
    rows = []
    for name, plan, batches in SELECTED:
        dense, selected = create_model(name).eval(), create_model(name, plan=plan).eval()
        shape = (1, 3, *dense.default_input)
        macs = count_macs(dense, *shape).total / count_macs(selected, *shape).total
        for batch in batches:
            video = clip_for(dense, batch)
            seconds = time_forwards({"dense": dense, "selected": selected}, video, repeats)
            ratio = seconds["dense"] / seconds["selected"]
            rows.append(
                {"model": name, "plan": plan, "batch": batch, "speed-up": ratio}
                | {"speed-up in MACs": macs, "realised": ratio / macs, "time": 1 / ratio}
                | {"selectors' share": selector_share(selected, video)}
            )
    return rows


def selector_share(model: nn.Module, video: Tensor, repeats: int = 3) -> float:
    """Give the selectors' share of the time of a forward."""
    selectors = list(model.token_selectors.values())
    spent: list[float] = []
    handles = []
    for selector in selectors:
        handles += [
            selector.register_forward_pre_hook(lambda *_: spent.append(-time.perf_counter())),
            selector.register_forward_hook(lambda *_: spent.append(time.perf_counter())),
        ]
    start = time.perf_counter()
    with torch.inference_mode():
        for _ in range(repeats):
            model(video)
    total = time.perf_counter() - start
    for handle in handles:
        handle.remove()
    return sum(spent) / total


def measure_training(repeats: int) -> list[Row]:
    """Compare a training step (forward, backward, optimizer) of a selected and a dense model."""
    rows = []
    for name, batch in (("mvit_mini", 8), ("mvit_b16", 1)):
        steps = {}
        for plan in ("dense", "T0_0.6"):
            model = create_model(name, plan=plan).train()
            optimizer = torch.optim.AdamW(model.parameters(), lr=1e-5)
            video, labels = clip_for(model, batch), torch.zeros(batch, dtype=torch.long)
            steps[plan] = partial(train_step, model, optimizer, video, labels)
        seconds = measure_latency(steps, repeats=repeats)
        ratio = seconds["dense"] / seconds["T0_0.6"]
        rows.append({"model": name, "batch": batch, "speed-up": ratio, **seconds})
    return rows


def train_step(
    model: nn.Module, optimizer: torch.optim.Optimizer, video: Tensor, labels: Tensor
) -> None:
    """Take one step."""
    F.cross_entropy(model(video), labels).backward()
    optimizer.step()
    optimizer.zero_grad()


def measure_memory(repeats: int) -> list[Row]:
    """Compare the peak memory of inference at batch 4, each in a process of its own."""
    rows = []
    for name in PAIRS:
        peaks = {}
        for kind in ("ours", "torchvision"):
            command = [sys.executable, "-m", "benchmarks.speed", "--peak-of", name, kind]
            peaks[kind] = float(subprocess.check_output(command, text=True))
        rows.append({"model": name, "batch": 4, **{f"{k} MB": mb for k, mb in peaks.items()}})
    return rows


def print_peak(name: str, kind: str) -> None:
    """Print the peak memory, in MB, of a process that runs one batch of 4."""
    with torch.device("meta"):
        shape = create_model(name).default_input
    model = create_model(name).eval() if kind == "ours" else build_torchvision(name)
    with torch.inference_mode():
        model(torch.randn(4, 3, *shape))
    print(resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 1024)


def measure_growth(repeats: int) -> list[Row]:
    """Time MViT-B16, dense and selected, over frames and sizes."""
    rows = []
    for frames, size in ((8, 224), (16, 112), (16, 224), (16, 320), (32, 224)):
        models = {
            plan: create_model("mvit_b16", plan=plan, frames=frames, size=size).eval()
            for plan in ("dense", "T0_0.6-S4_0.9")
        }
        video = clip_for(models["dense"])
        seconds = time_forwards(models, video, max(3, repeats // 2))
        gmacs = count_macs(models["dense"], *video.shape).gmacs
        rows.append({"frames": frames, "size": size, "GMACs dense": gmacs, **seconds})
    return rows


def measure_limit(repeats: int) -> list[Row]:
    """Measure the machine's rate of matrix products, the limit of all the above."""
    rows = []
    for rows_, inner, columns in ((25088, 96, 384), (1568, 384, 1536), (6272, 512, 2048)):
        left, right = torch.randn(rows_, inner), torch.randn(inner, columns)
        seconds = measure_latency({"product": partial(torch.mm, left, right)}, repeats=20)
        rate = rows_ * inner * columns / seconds["product"] / 1e9
        rows.append({"rows": rows_, "inner": inner, "columns": columns, "GMACs a second": rate})
    return rows


PARTS: dict[str, Callable[[int], list[Row]]] = {
    "dense": measure_dense,
    "selected": measure_selected,
    "training": measure_training,
    "memory": measure_memory,
    "growth": measure_growth,
    "limit": measure_limit,
}


def main() -> None:
    """Measure the parts asked for, save and print them."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--parts", nargs="+", choices=PARTS, default=list(PARTS))
    parser.add_argument("--repeats", type=int, default=7)
    parser.add_argument("--out", type=Path, default=RESULTS / "speed.json")
    parser.add_argument("--peak-of", nargs=2, metavar=("MODEL", "KIND"), help=argparse.SUPPRESS)
    settings = parser.parse_args()
    if settings.peak_of:
        return print_peak(*settings.peak_of)
    results = json.loads(settings.out.read_text()) if settings.out.exists() else {}
    for part in settings.parts:
        results[part] = {
            "command": f"python -m benchmarks.speed --parts {part} --repeats {settings.repeats}",
            "machine": f"{os.cpu_count()} cores, {torch.get_num_threads()} threads",
            "torch": torch.__version__,
            "rows": PARTS[part](settings.repeats),
        }
        settings.out.write_text(json.dumps(results, indent=1))
        print_rows(part, results[part]["rows"])


def print_rows(part: str, rows: list[Row]) -> None:
    """Print one part as a table."""
    table = Table(*rows[0], title=part)
    for row in rows:
        table.add_row(*(f"{v:.3f}" if isinstance(v, float) else str(v) for v in row.values()))
    Console(width=140).print(table)


if __name__ == "__main__":
    main()
