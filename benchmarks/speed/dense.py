"""Dense models: beside torchvision's, prepared and compiled, and the peak of their memory."""

import copy
import subprocess
import sys
from pathlib import Path

import torch

from benchmarks.speed.timing import (
    PAIRS,
    Row,
    build,
    build_torchvision,
    make_clips,
    time_forwards,
)
from tokenselect import create_model, optimize_for_inference
from tokenselect.profiling import count_macs


def measure_dense(repeats: int, device: torch.device) -> list[Row]:
    """Compare our dense models with torchvision's, same weights, logits checked to 1e-4."""
    rows = []
    for name, batch in (("mvit_b16", 1), ("mvit_b16", 4), ("video_swin_b", 1)):
        theirs, ours = build_torchvision(name, device), build(name, None, device)
        ours.load_state_dict(PAIRS[name][1](theirs.state_dict()))
        video = make_clips(ours, batch, device)
        with torch.inference_mode():
            gap = (ours(video) - theirs(video)).abs().max().item()
        assert gap < 1e-4, f"logits differ by {gap}"
        seconds = time_forwards({"ours": ours, "torchvision": theirs}, video, repeats)
        ratio = seconds["torchvision"] / seconds["ours"]
        rate = batch * count_macs(ours, 1, *video.shape[1:]).gmacs / seconds["ours"]
        rows.append({"model": name, "batch": batch, "speed-up": ratio, **seconds})
        rows[-1] |= {"GMACs a second": rate, "largest gap of logits": f"{gap:.0e}"}
    return rows


def measure_optimized(repeats: int, device: torch.device) -> list[Row]:
    """Time models as they are, after `optimize_for_inference`, and through `torch.compile`.

    What the preparation changes holds for the process, so models as they are come first.
    """
    rows = []
    for name, plan, batch in (
        ("mvit_b16", None, 1),
        ("mvit_b16", "T0_0.6-S4_0.9", 1),
        ("mvit_b16", None, 4),
    ):
        command = [sys.executable, "-m", "benchmarks.speed", "--device", device.type]
        command += ["--repeats", str(repeats), "--prepare", name, plan or "dense", str(batch)]
        found = {
            kind: float(subprocess.check_output([*command, kind], text=True))
            for kind in ("as it is", "optimized", "compiled")
        }
        rows.append({"model": name, "plan": plan or "dense", "batch": batch, **found})
        rows[-1] |= {"optimized speed-up": found["as it is"] / found["optimized"]}
        rows[-1] |= {"compiled speed-up": found["as it is"] / found["compiled"]}
    return rows


def print_prepared(
    name: str, plan: str, batch: str, kind: str, *, repeats: int, device: torch.device
) -> None:
    """Print the median seconds of a model in this process, logits checked to 1e-4."""
    model = build(name, None if plan == "dense" else plan, device)
    video = make_clips(model, int(batch), device)
    with torch.inference_mode():
        expected = copy.deepcopy(model)(video)
        if kind == "optimized":
            model = optimize_for_inference(model)
        run = torch.compile(model) if kind == "compiled" else model
        gap = (run(video) - expected).abs().max().item()
    assert gap < 1e-4, f"logits differ by {gap}"
    print(time_forwards({kind: run}, video, repeats)[kind])


def measure_memory(repeats: int, device: torch.device) -> list[Row]:
    """Compare the peak memory of inference at batch 4, each in a process of its own."""
    rows = []
    for name in PAIRS:
        row: Row = {"model": name, "batch": 4}
        for kind in ("ours", "torchvision"):
            command = [sys.executable, "-m", "benchmarks.speed", "--device", device.type]
            command += ["--peak-of", name, kind]
            row[f"{kind} MB"] = float(subprocess.check_output(command, text=True))
        rows.append(row)
    return rows


def print_peak(name: str, kind: str, device: torch.device) -> None:
    """Print the megabytes that one forward of a batch of 4 needs at its peak (Linux)."""
    with torch.device("meta"):
        shape = create_model(name).default_input
    model = build(name, None, device) if kind == "ours" else build_torchvision(name, device)
    video = torch.randn(4, 3, *shape, device=device)
    if device.type == "cuda":
        before = torch.cuda.memory_allocated() / 1024
        torch.cuda.reset_peak_memory_stats()
    else:
        Path("/proc/self/clear_refs").write_text("5")  # the peak counts from here
        before = read_status("VmRSS")
    with torch.inference_mode():
        model(video)
    is_cuda = device.type == "cuda"
    peak = torch.cuda.max_memory_allocated() / 1024 if is_cuda else read_status("VmHWM")
    print((peak - before) / 1024)


def read_status(field: str) -> int:
    """Read one of the kernel's figures on this process, in kilobytes."""
    lines = Path("/proc/self/status").read_text().splitlines()
    return next(int(line.split()[1]) for line in lines if line.startswith(field))
