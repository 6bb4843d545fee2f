"""Selection in models of other libraries at full size: multiply-adds and time of one view.

Claim: `insert_selectors(model, "T0_0.6-S4_0.9")` about halves both, but for Swin3D, which pads the
kept frames to whole windows; there a whole window of frames (`--plan T0=8 --models swin`) does.

    PYTHONPATH=src:. python benchmarks/other_libraries.py \\
        --save benchmarks/results/other_libraries.md

Weights are random, clips too. The dense and the selecting model take turns on one thread; the
factor is the median over the rounds of the two times' ratio, so a busy machine is fair to both.
"""

from __future__ import annotations

import argparse
import platform
import statistics
import sys
import time
from collections.abc import Callable
from importlib.metadata import version
from pathlib import Path
from types import ModuleType

import torch
from torch import nn

from benchmarks.torchvision_import import import_torchvision
from tokenselect import insert_selectors
from tokenselect.measure.cost import count_macs

Case = tuple[Callable[[], nn.Module], tuple[int, ...]]


def list_models(torchvision: ModuleType, transformers: ModuleType) -> dict[str, Case]:
    """Give each model's builder and the shape of its usual clip."""

    def hugging_face(name: str, **settings: object) -> Callable[[], nn.Module]:
        config = getattr(transformers, f"{name}Config")(**settings)
        return lambda: getattr(transformers, f"{name}ForVideoClassification")(config)

    videomae = hugging_face("VideoMAE", use_mean_pooling=True)
    return {
        "torchvision mvit_v1_b": (torchvision.mvit_v1_b, (1, 3, 16, 224, 224)),
        "torchvision mvit_v2_s": (torchvision.mvit_v2_s, (1, 3, 16, 224, 224)),
        "torchvision swin3d_t": (torchvision.swin3d_t, (1, 3, 32, 224, 224)),
        "torchvision swin3d_b": (torchvision.swin3d_b, (1, 3, 32, 224, 224)),
        "VideoMAE-B": (videomae, (1, 16, 3, 224, 224)),
        "TimeSformer-B": (hugging_face("Timesformer"), (1, 8, 3, 224, 224)),
        "ViViT-B": (hugging_face("Vivit"), (1, 32, 3, 224, 224)),
        "V-JEPA 2-L": (hugging_face("VJEPA2", frames_per_clip=16), (1, 16, 3, 256, 256)),
    }


def time_in_turns(
    dense: nn.Module, selecting: nn.Module, shape: tuple[int, ...], repeats: int
) -> tuple[float, float, float]:
    """Give the medians of both models' seconds and of their ratio."""
    clip, rounds = torch.randn(shape), []
    with torch.inference_mode():
        for _ in range(repeats + 1):
            start = time.perf_counter()
            dense(clip)
            middle = time.perf_counter()
            selecting(clip)
            rounds.append((middle - start, time.perf_counter() - middle))
    dense_times, times = zip(*rounds[1:], strict=True)
    ratios = [one / two for one, two in rounds[1:]]
    return statistics.median(dense_times), statistics.median(times), statistics.median(ratios)


def measure(
    build: Callable[[], nn.Module], shape: tuple[int, ...], options: argparse.Namespace
) -> str:
    """Count and time one model: the cells of its row."""
    dense = build().eval()
    selecting = insert_selectors(build().eval(), options.plan, scorer="paper")
    counts = [count_macs(model, *shape).gmacs for model in (dense, selecting)]
    row = f"{counts[0]:.1f} | {counts[1]:.1f} | {counts[0] / counts[1]:.2f}"
    if not options.repeats:
        return row + " | – | – | –"
    seconds = time_in_turns(dense, selecting, shape, options.repeats)
    return row + f" | {seconds[0]:.2f} | {seconds[1]:.2f} | {seconds[2]:.2f}"


def main() -> None:
    """Print the table, row by row, and save it if asked."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0] if __doc__ else None)
    parser.add_argument("--plan", default="T0_0.6-S4_0.9")
    parser.add_argument("--repeats", type=int, default=3, help="rounds of timing; 0 for none")
    parser.add_argument("--models", default="", help="only those whose name holds this")
    parser.add_argument("--save", type=Path)
    options = parser.parse_args()
    torch.set_num_threads(1)
    torchvision = import_torchvision("torchvision.models.video")
    import transformers

    versions = ", ".join(f"{name} {version(name)}" for name in ("torchvision", "transformers"))
    lines = [
        f"# Models of other libraries, {options.plan}",
        "",
        f"`python benchmarks/other_libraries.py {' '.join(sys.argv[1:])}`".replace(" `", "`"),
        "",
        f"{platform.machine()}, one thread, torch {torch.__version__}, {versions}",
        "",
        "| model | clip | GMACs dense | selected | times less "
        "| s dense | selected | times faster |",
        "| --- | --- | --- | --- | --- | --- | --- | --- |",
    ]
    print("\n".join(lines))
    for name, (build, shape) in list_models(torchvision, transformers).items():
        if options.models.lower() not in name.lower():
            continue
        frames = max(shape[1:3])
        row = f"| {name} | {frames} × {shape[3]}² | {measure(build, shape, options)} |"
        print(row, flush=True)
        lines.append(row)
    if options.save:
        options.save.write_text("\n".join(lines) + "\n")


if __name__ == "__main__":
    main()
