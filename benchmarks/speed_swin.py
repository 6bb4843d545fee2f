"""Video Swin against torchvision's, against its own multiply-adds, and against the machine's limit.

Claims: dense Video Swin-B at least 1.7 × as fast as torchvision's `swin3d_b`, in less memory; with
10 of 16 token frames kept, at most 0.66 of the multiply-adds and 0.70 of the time, because windows
are fitted to the kept frames instead of padding them.

    PYTHONPATH=src:. python benchmarks/speed_swin.py --save benchmarks/results/speed_swin.md

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
from torch import Tensor, nn
from torch.profiler import ProfilerActivity, profile

from benchmarks.torchvision_import import import_torchvision
from tokenselect.backbones.video_swin import (
    VideoSwin,
    from_torchvision,
    video_swin_b,
    video_swin_mini,
    video_swin_t,
)
from tokenselect.grid import TokenGrid
from tokenselect.profiling import count_macs

CLOCKS = {"wall": time.perf_counter, "cpu": time.process_time}
CLIP = (3, 32, 224, 224)
FRAMES = [16, 13, 12, 10, 8, 6]  # token frames kept
KINDS = {  # operators by what they do; the rest is moving and adding numbers
    "matrix products": ("aten::addmm", "aten::mm"),
    "attention": (
        "aten::_scaled_dot_product_flash_attention_for_cpu",
        "aten::bmm",
        "aten::_softmax",
    ),
    "GELU and norms": ("aten::gelu", "aten::native_layer_norm"),
}
Task = Callable[[], object]


class Stopwatch:
    """Times tasks in turns."""

    def __init__(self, clock: str, rounds: int) -> None:
        self.clock, self.rounds = CLOCKS[clock], rounds

    def measure(self, tasks: dict[str, Task]) -> dict[str, tuple[float, float]]:
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


class KeepFrames(nn.Module):
    """A model whose first token frames alone pass on to its blocks."""

    def __init__(self, model: VideoSwin, frames: int) -> None:
        super().__init__()
        self.model, self.frames = model, frames

    def forward(self, video: Tensor) -> Tensor:
        """Map clips to logits."""
        grid = TokenGrid.from_patches(self.model.embed(video).patches[:, : self.frames])
        for block in self.model.blocks:
            grid = block(grid)
        return self.model.head(grid)


def make_pair() -> tuple[nn.Module, VideoSwin]:
    """Build torchvision's Swin3D-B and ours, with the same weights."""
    theirs = import_torchvision("torchvision.models.video").swin3d_b().eval()
    ours = video_swin_b().eval()
    ours.load_state_dict(from_torchvision(theirs.state_dict()))
    return theirs, ours


def run(model: nn.Module, video: Tensor) -> Task:
    """Return a task that runs the model without gradients."""

    def task() -> Tensor:
        with torch.inference_mode():
            return model(video)

    return task


def compare_dense(watch: Stopwatch, batches: list[int]) -> list[str]:
    """Compare with torchvision, and with the rate of plain matrix products."""
    theirs, ours = make_pair()
    left, right = torch.randn(3136, 512), torch.randn(512, 2048)
    gmacs = count_macs(ours, 1, *CLIP).gmacs
    rows = ["| batch | model | s | × torchvision | GMACs/s | of products |", "|" + " --- |" * 6]
    for batch in batches:
        video = torch.randn(batch, *CLIP)
        tasks: dict[str, Task] = {"torchvision": run(theirs, video), "ours": run(ours, video)}
        gap = (tasks["torchvision"]() - tasks["ours"]()).abs().max().item()
        assert gap < 1e-4, f"logits differ by {gap}"
        tasks["products"] = lambda: [left @ right for _ in range(40)]
        found = watch.measure(tasks)
        limit = 40 * 3136 * 512 * 2048 / found.pop("products")[0] / 1e9
        for name, (seconds, ratio) in found.items():
            rate = batch * gmacs / seconds
            rows.append(
                f"| {batch} | {name} | {seconds:.2f} | {ratio:.2f} | {rate:.0f} "
                f"| {rate / limit:.0%} |"
            )
            print(rows[-1], flush=True)
    return rows


def compare_frames(watch: Stopwatch, batches: list[int]) -> list[str]:
    """Compare what fewer frames save in multiply-adds and in time, windows fitted and padded."""
    rows = [
        "| batch | token frames | windows | GMACs | of dense | s | time of dense |",
        "|" + " --- |" * 7,
    ]
    fitted, padded = video_swin_b().eval(), video_swin_b(fit_windows=False).eval()
    models = {(frames, "fitted"): KeepFrames(fitted, frames) for frames in FRAMES}
    models |= {(frames, "padded"): KeepFrames(padded, frames) for frames in (13, 10)}
    gmacs = {key: count_macs(model, 1, *CLIP).gmacs for key, model in models.items()}
    for batch in batches:
        video = torch.randn(batch, *CLIP)
        found = watch.measure({str(key): run(model, video) for key, model in models.items()})
        for key in models:
            seconds, ratio = found[str(key)]
            share = gmacs[key] / gmacs[16, "fitted"]
            rows.append(
                f"| {batch} | {key[0]} of 16 | {key[1]} | {gmacs[key]:.1f} | {share:.2f} "
                f"| {seconds:.2f} | {1 / ratio:.2f} |"
            )
            print(rows[-1], flush=True)
    return rows


def training_step(model: nn.Module, video: Tensor) -> Task:
    """Return a task: forward, backward and a step of AdamW."""
    optimizer = torch.optim.AdamW(model.train().parameters(), fused=True)
    labels = torch.zeros(len(video), dtype=torch.long)

    def task() -> None:
        optimizer.zero_grad()
        F.cross_entropy(model(video), labels).backward()
        optimizer.step()

    return task


def compare_training(watch: Stopwatch, batches: list[int]) -> list[str]:
    """Compare training steps with torchvision's, and with fewer frames."""
    swin = import_torchvision("torchvision.models.video.swin_transformer")
    rows = ["| model | clips | s a step | × torchvision |", "|" + " --- |" * 4]
    mini = swin.SwinTransformer3d([2, 4, 4], 32, [2, 4, 2], [1, 2, 4], [4, 4, 4])
    for name, theirs, ours, shape, kept in (
        ("mini", mini, video_swin_mini(), (8, 3, 16, 64, 64), 5),
        ("T", swin.swin3d_t(), video_swin_t(), (1, *CLIP), 10),
    ):
        video = torch.randn(shape)
        tasks = {
            f"torchvision {name}": training_step(theirs, video),
            f"ours {name}": training_step(ours, video),
            f"ours {name}, {kept} of {shape[2] // 2} frames": training_step(
                KeepFrames(ours, kept), video
            ),
        }
        for label, (seconds, ratio) in watch.measure(tasks).items():
            rows.append(f"| {label} | {len(video)} | {seconds:.2f} | {ratio:.2f} |")
            print(rows[-1], flush=True)
    return rows


def list_kinds(watch: Stopwatch, batches: list[int]) -> list[str]:
    """Show what the time of a forward goes to."""
    rows = ["| model | operators | s | of all |", "|" + " --- |" * 4]
    video = torch.randn(1, *CLIP)
    for name, model in zip(("torchvision", "ours"), make_pair(), strict=True):
        task = run(model, video)
        task()
        with profile(activities=[ProfilerActivity.CPU]) as record:
            task()
        times = {event.key: event.self_cpu_time_total / 1e6 for event in record.key_averages()}
        total = sum(times.values())
        kinds = {kind: sum(times.pop(key, 0) for key in keys) for kind, keys in KINDS.items()}
        for kind, seconds in {**kinds, "all else": sum(times.values())}.items():
            rows.append(f"| {name} | {kind} | {seconds:.2f} | {seconds / total:.0%} |")
            print(rows[-1], flush=True)
    return rows


def compare_memory(watch: Stopwatch, batches: list[int]) -> list[str]:
    """Compare what a forward adds to its process's peak memory, each in a process of its own."""
    rows = ["| batch | model | peak MB |", "|" + " --- |" * 3]
    for batch in batches:
        for name in ("torchvision", "ours"):
            command = [sys.executable, __file__, "--peak", name, "--batches", str(batch)]
            shown = subprocess.run(command, check=True, capture_output=True, text=True).stdout
            rows.append(f"| {batch} | {name} | {float(shown):.0f} |")
            print(rows[-1], flush=True)
    return rows


def measure_peak(name: str, batch: int) -> float:
    """Return the megabytes that one forward adds to this process's peak."""
    models = dict(zip(("torchvision", "ours"), make_pair(), strict=True))
    task = run(models[name], torch.randn(batch, *CLIP))
    before = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
    task()
    return (resource.getrusage(resource.RUSAGE_SELF).ru_maxrss - before) / 1024


PARTS = {
    "dense": ("Beside torchvision", compare_dense),
    "frames": ("Fewer frames", compare_frames),
    "training": ("Training steps", compare_training),
    "kinds": ("Where the time goes", list_kinds),
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
    parser.add_argument("--peak", choices=["torchvision", "ours"], help=argparse.SUPPRESS)
    parser.add_argument("--save", type=Path)
    arguments = parser.parse_args()
    torch.set_num_threads(arguments.threads)
    if arguments.peak:
        print(measure_peak(arguments.peak, arguments.batches[0]))
        return
    watch = Stopwatch(arguments.clock, arguments.rounds)
    lines = ["# Speed of Video Swin", "", f"`python {' '.join(sys.argv)}`", ""]
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
