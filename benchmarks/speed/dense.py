"""Dense models: beside torchvision's, compiled, and the peak of their memory."""

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
    medians,
    speed_up,
    time_forwards,
)
from tokenselect import create_model
from tokenselect.measure.cost import count_macs


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
        rounds = time_forwards({"ours": ours, "torchvision": theirs}, video, repeats)
        seconds, ratio = medians(rounds), speed_up(rounds, "torchvision", "ours")
        rate = batch * count_macs(ours, 1, *video.shape[1:]).gmacs / seconds["ours"]
        rows.append({"model": name, "batch": batch, "speed-up": ratio, **seconds})
        rows[-1] |= {"GMACs a second": rate, "largest gap of logits": f"{gap:.0e}"}
    return rows


def measure_compiled(repeats: int, device: torch.device) -> list[Row]:
    """Compare models with themselves through `torch.compile`, logits checked to 1e-4."""
    rows = []
    for plan in ("dense", "T0_0.6-S4_0.9"):
        torch.manual_seed(0)  # of untrained scores some are nearly equal: rounding may swap them
        model = build("mvit_b16", plan, device)
        compiled = torch.compile(model)
        video = make_clips(model, 1, device)
        with torch.inference_mode():
            gap = (compiled(video) - model(video)).abs().max().item()
        assert gap < 1e-4, f"logits differ by {gap}"
        rounds = time_forwards({"eager": model, "compiled": compiled}, video, repeats)
        ratio = speed_up(rounds, "eager", "compiled")
        rows.append({"model": "mvit_b16", "plan": plan, "batch": 1, "speed-up": ratio})
        rows[-1] |= medians(rounds)
    return rows


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
