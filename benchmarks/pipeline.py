"""The whole way from files to answers, beside decoding alone and the model alone.

Claims: what reads and answers reaches at least 0.9 of what the added core-seconds of both allow,
and spends hardly more of them;
frames that a plan drops for sure are not decoded; an hour of 1080p takes no more memory than a
minute; Ray's workers add up.

    PYTHONPATH=src:. python -m benchmarks.pipeline CLIPS --parts way

CLIPS is a folder of real videos, of which files of 3 seconds at 240p and 1080p are made. Weights
are random. Times are medians of rounds in which all ways take turns.
"""

import argparse
import os
import platform
import re
import resource
import statistics
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable, Iterable, Iterator
from functools import partial
from pathlib import Path
from typing import Any

import av
import torch
from torch import nn
from torch.utils.data import DataLoader

from tokenselect.checkpoints import info_of
from tokenselect.data import open_video, write_video
from tokenselect.data.frame_folder import walk_videos
from tokenselect.data.transforms import resize
from tokenselect.inference.bulk import (
    SharedWork,
    answer_windows,
    on_ray,
    on_this_machine,
    read_and_answer,
    read_videos,
)
from tokenselect.inference.memory import optimize_for_inference
from tokenselect.inference.predict import Reading, lean_rule
from tokenselect.models import create_model

CORES = len(os.sched_getaffinity(0))
SIZES = {"240p": (240, 426), "1080p": (1080, 1920)}
FRAMES, FPS, DIFFERENT = 90, 30, 3  # of a file, and how many different ones are encoded
ENCODER = {"preset": "veryfast", "g": "60", "crf": "23"}
# model → videos at 240p and at 1080p, rounds
SMALL_ONLY = ("readers", "model, threads")  # ways that are timed for the small model alone
COUNTS = {"mvit_mini": (48, 16, 3), "mvit_b16": (8, 8, 1), "video_swin_b": (4, 4, 1)}


def make_files(clips: str, folder: Path, size: str, count: int) -> list[str]:
    """Write 3-second files of the first real clips, and link them until there are `count`."""
    made, fit = [], partial(resize, size=SIZES[size])
    for source in walk_videos(clips)[:DIFFERENT]:
        path = folder / f"{size}_{len(made)}.mp4"
        if not path.exists():
            with open_video(source) as video:
                numbers = [n % video.num_frames for n in range(FRAMES)]
                (frames,) = video.read_clips([numbers], lambda *_: [fit])
            write_video(path, frames, fps=FPS, options=ENCODER)
        made.append(path)
    links = [folder / f"{size}_link_{n}.mp4" for n in range(count)]
    for number, link in enumerate(links):
        link.unlink(missing_ok=True)
        link.symlink_to(made[number % len(made)])
    return [str(link) for link in links]


def core_seconds() -> float:
    """Give the processor time of this process and of those it has waited for."""
    used = [resource.getrusage(who) for who in (resource.RUSAGE_SELF, resource.RUSAGE_CHILDREN)]
    return sum(usage.ru_utime + usage.ru_stime for usage in used)


def clock(work: Callable[[], Iterable[Any]]) -> tuple[float, float]:
    """Run what gives items; return wall and core seconds."""
    start, used = time.perf_counter(), core_seconds()
    for _ in work():
        pass
    return time.perf_counter() - start, core_seconds() - used


def in_workers(items: Any, work: Callable[[Iterable[Any]], Iterator[Any]]) -> Iterator[Any]:
    """Share items between as many processes as there are cores."""
    yield from DataLoader(SharedWork(items, work), batch_size=None, num_workers=CORES)


def read_only(videos: Iterable[str], *, reading: Reading) -> Iterator[int]:
    """Read videos and give nothing on."""
    for _ in read_videos(videos, reading):
        yield 1


def answer_held(numbers: Iterable[int], *, windows: list[Any], **options: Any) -> Iterator[Any]:
    """Answer windows that are in memory."""
    return answer_windows((windows[number] for number in numbers), **options)


def build(name: str, plan: str | None = None) -> nn.Module:
    """Build a model with random weights."""
    torch.manual_seed(0)
    model = create_model(name, plan=plan, method="uniform") if plan else create_model(name)
    return optimize_for_inference(model)


def measure_way(model: nn.Module, videos: list[str], *, rounds: int, batch: int) -> dict[str, Any]:
    """Time decoding, the model, and both together; give seconds a clip by way."""
    reading, options = Reading(lean_rule(model)), {"model": model, "batch": batch}
    windows = list(read_videos(videos, reading))
    read, answer = partial(read_videos, reading=reading), partial(answer_windows, **options)
    ways: dict[str, Callable[[], Iterable[Any]]] = {
        "decoding": lambda: in_workers(videos, partial(read_only, reading=reading)),
        "model, threads": lambda: answer(windows),
        "model, processes": lambda: in_workers(
            range(len(windows)), partial(answer_held, windows=windows, **options)
        ),
        "readers": lambda: read_and_answer(
            videos, read, answer, model=model, workers=CORES, is_torch=False
        ),
        "whole way": lambda: on_this_machine(
            model, videos, reading=reading, workers=CORES, batch=batch
        ),
    }
    if rounds == 1:  # a large model: what is not needed for the share is left out
        ways = {name: way for name, way in ways.items() if name not in SMALL_ONLY}
    list(answer(windows[:1]))
    turns = [{name: clock(work) for name, work in ways.items()} for _ in range(rounds)]
    return {
        name: tuple(
            statistics.median(turn[name][n] for turn in turns) / len(videos) for n in (0, 1)
        )
        for name in ways
    }


def print_way(clips: str, folder: Path, *, models: list[str], batch: int) -> None:
    """Print what each way costs and reaches.

    Others may use the machine, too: the cores at hand are the most that any way kept busy. They
    come and go between the ways; the share of core-seconds, added ones over those of the whole way,
    does not depend on them.
    """
    print(
        "| model | files | videos | decoding alone, core ms a clip | model alone | whole way | "
        "share of core-seconds | cores at hand | allowed, clips a second | whole way | share | "
        "readers beside one model |"
    )
    print("|" + " --- |" * 12)
    for name in models:
        model, (*counts, rounds) = build(name), COUNTS[name]
        for size, count in zip(SIZES, counts, strict=True):
            videos = make_files(clips, folder, size, count)
            found = measure_way(model, videos, rounds=rounds, batch=batch)
            parts = found["decoding"][1], min(f[1] for n, f in found.items() if "model" in n)
            cores = max(spent / wall for wall, spent in found.values())
            allowed, whole = cores / sum(parts), 1 / found["whole way"][0]
            spent = " | ".join(f"{1e3 * s:.3g}" for s in (*parts, found["whole way"][1]))
            rates = f"{cores:.2f} | {allowed:.3g} | {whole:.3g} | {whole / allowed:.2f}"
            spent += f" | {sum(parts) / found['whole way'][1]:.2f}"
            readers = f"{1 / found['readers'][0]:.3g}" if "readers" in found else "–"
            print(
                f"| {name} | {size} | {count} | {spent} | {rates} | {readers} |",
                flush=True,
            )


def print_skip(clips: str, folder: Path) -> None:
    """Print what reading a clip costs with the frames that the plan drops and without."""
    print("| model | plan | files | frames decoded | core ms a clip, all frames | without | × |")
    print("|" + " --- |" * 7)
    for name, plan in (("mvit_b16", "T0_0.4"), ("video_swin_b", "T0_0.4")):
        model = build(name, plan)
        rules = info_of(model).clip_rule, lean_rule(model)
        for size in SIZES:
            videos = make_files(clips, folder, size, 6)
            ways = [partial(read_only, videos, reading=Reading(rule)) for rule in rules]
            turns = [[clock(way)[1] for way in ways] for _ in range(3)]
            dense, lean = (1e3 * statistics.median(way) / 6 for way in zip(*turns, strict=True))
            seen = f"{len(rules[1].seen or ())} of {rules[0].frames}"
            row = f"| {name} | {plan} uniform | {size} | {seen} | {dense:.1f} | {lean:.1f} |"
            print(row, f"{dense / lean:.2f} |", flush=True)


def loop_file(source: str, path: Path, turns: int) -> None:
    """Put a file's packets one after the other `turns` times, without encoding again."""
    with av.open(str(path), "w") as out:
        stream, shift = None, 0
        for _ in range(turns):
            with av.open(source) as container:
                video = container.streams.video[0]
                stream = stream or out.add_stream_from_template(video)
                packets = [packet for packet in container.demux(video) if packet.size]
                span = max(packet.pts + packet.duration for packet in packets)
                for packet in packets:
                    packet.pts, packet.dts, packet.stream = (
                        packet.pts + shift, packet.dts + shift, stream
                    )  # fmt: skip
                    out.mux(packet)
                shift += span


def peak_megabytes(words: list[str]) -> tuple[float, float]:
    """Run the command in a process of its own; give the most memory it held, and seconds.

    The kernel's own mark is read while it runs: `ru_maxrss` would count this process, too.
    """
    start, peak = time.perf_counter(), 0
    command = [sys.executable, "-m", "tokenselect", *words]
    process = subprocess.Popen(command, stdout=subprocess.DEVNULL)
    while process.poll() is None:
        status = Path(f"/proc/{process.pid}/status").read_text()
        peak = int((re.search(r"VmHWM:\s+(\d+)", status) or [0, peak])[1])
        time.sleep(0.2)
    if process.returncode:
        raise RuntimeError(f"tokenselect {' '.join(words)} failed")
    return peak / 1024, time.perf_counter() - start


def print_hour(clips: str, folder: Path) -> None:
    """Print the memory that a minute and an hour of 1080p take."""
    made = make_files(clips, folder, "1080p", 1)[0]
    short = str(folder / "short.mp4")
    with open_video(made) as video:
        options = {"preset": "ultrafast", "g": "30", "crf": "45"}
        write_video(short, video.read(range(FRAMES)), fps=FPS, options=options)
    words = ["--model", "mvit_mini", "--plan", "T0_0.6", "--method", "uniform", "--repeats", "0"]
    print("| length | MB of the file | `predict` with | peak MB | seconds |")
    print("| --- | --- | --- | --- | --- |")
    for name, turns in (("a minute", 20), ("an hour", 1200)):
        path = folder / f"{name.split()[1]}.mp4"
        loop_file(short, path, turns)
        for extra in (["--window", "60", "--step", "60"], ["--window", "0", "--whole"]):
            megabytes, seconds = peak_megabytes(["predict", str(path), *words, *extra])
            size, shown = path.stat().st_size / 2**20, " ".join(extra)
            print(
                f"| {name} | {size:.0f} | {shown} | {megabytes:.0f} | {seconds:.0f} |", flush=True
            )
        path.unlink()


def print_ray(clips: str, folder: Path, *, batch: int) -> None:
    """Print how the rate grows with the workers, on Ray and without."""
    print("| workers | on this machine, videos a second | on Ray | seconds until Ray's first row |")
    print("| --- | --- | --- | --- |")
    model, videos = build("mvit_mini"), make_files(clips, folder, "240p", 96)
    options = {"reading": Reading(lean_rule(model)), "batch": batch}
    for workers in (1, 2):
        here = (
            len(videos)
            / clock(partial(on_this_machine, model, videos, workers=workers, **options))[0]
        )
        start, times = time.perf_counter(), []
        for _ in on_ray(model, videos, workers=workers, address="local", **options):
            times.append(time.perf_counter())
        rest = [moment for moment in times if moment > times[0] + 0.05]
        ray = len(rest) / (times[-1] - times[0])
        print(f"| {workers} | {here:.1f} | {ray:.1f} | {times[0] - start:.1f} |", flush=True)


def main() -> None:
    """Print the parts that were asked for."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("clips")
    parser.add_argument("--parts", nargs="+", default=["way", "skip", "hour", "ray"])
    parser.add_argument("--models", nargs="+", default=list(COUNTS))
    parser.add_argument("--batch", type=int, default=8)
    arguments = parser.parse_args()
    torch.set_num_threads(CORES)
    command = " ".join(["CLIPS", *sys.argv[2:]])
    machine = f"{platform.machine()}, {CORES} cores, torch {torch.__version__}"
    print(f"PYTHONPATH=src:. python -m benchmarks.pipeline {command}  ({machine})\n")
    parts: dict[str, Callable[[str, Path], None]] = {
        "way": partial(print_way, models=arguments.models, batch=arguments.batch),
        "skip": print_skip,
        "hour": print_hour,
        "ray": partial(print_ray, batch=arguments.batch),
    }
    with tempfile.TemporaryDirectory() as folder:
        for part in arguments.parts:
            parts[part](arguments.clips, Path(folder))
            print()


if __name__ == "__main__":
    main()
