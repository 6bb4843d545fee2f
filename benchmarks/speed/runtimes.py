"""Our models and torchvision's, same weights, in torch, ONNX Runtime and OpenVINO.

One thread and processor time, so that a busy machine does not blur the comparison; more threads
are timed by the clock on the wall. Files are kept where `tokenselect --runtime` keeps its own:
exporting takes longer than measuring. OpenVINO reads ours from ONNX, as the package has it, and
torchvision's straight from torch: that way they are faster, and its Video Swin has no other.
"""

import argparse
import os
import statistics
import sys
import time
from collections.abc import Callable, Sequence

import torch
from torch import Tensor, nn

from benchmarks.speed.timing import PAIRS, Row, build, build_torchvision, make_clips
from tokenselect.export import OnnxModel, OpenVinoModel
from tokenselect.export.formats import export_program, fold_norms
from tokenselect.export.runtimes import FILES_VERSION, cache_folder
from tokenselect.measure.cost import count_macs

RUNTIMES = ("torch", "onnxruntime", "openvino")
NO_ONNX = {("torchvision", "video_swin_b")}  # its masks write into empty slices: no valid file
PLANS = {"mvit_b16": "T0_0.6-S4_0.9", "video_swin_b": "T0_0.6"}


def measure_runtimes(repeats: int, device: torch.device) -> list[Row]:
    """Time one clip through each; × is over the fastest of torchvision's rows."""
    threads = torch.get_num_threads()
    torch.set_num_threads(1)
    try:
        return [row for name in PLANS for row in compare(name, repeats, device)]
    finally:
        torch.set_num_threads(threads)


def compare(
    name: str,
    repeats: int,
    device: torch.device,
    plans: Sequence[str] = (),
    runtimes: Sequence[str] = RUNTIMES,
) -> list[Row]:
    """Give a row for each model and runtime; no plans are dense and one of the paper's."""
    torch.manual_seed(0)
    threads, theirs = torch.get_num_threads(), build_torchvision(name, device)
    with torch.no_grad():
        for table in theirs.parameters():  # zero biases and norms of one would be left out of files
            table.add_(0.02 * torch.randn_like(table))
    weights = PAIRS[name][1](theirs.state_dict())
    models: dict[tuple[str, str], nn.Module] = {("torchvision", "dense"): theirs}
    for plan in plans or ("dense", PLANS[name]):
        torch.manual_seed(0)  # the selectors of a file that was kept
        models["ours", plan] = build(name, plan, device)
        models["ours", plan].load_state_dict(weights, strict=False)
    clip = make_clips(next(m for key, m in models.items() if key[0] == "ours"), 1, device)
    runners = {
        (*key, runtime): run
        for key, model in models.items()
        for runtime, run in open_all(name, *key, model, tuple(clip.shape), runtimes).items()
    }
    clock = time.process_time if threads == 1 else time.perf_counter
    with torch.inference_mode():
        gaps = {
            key: (run(clip) - models[key[:2]](clip)).abs().max().item()
            for key, run in runners.items()
        }
        rounds = [
            {key: seconds_of(run, clip, clock) for key, run in runners.items()}
            for _ in range(repeats)
        ]
    others = [key for key in runners if key[0] == "torchvision"]
    rows = []
    for key in runners:
        ratio = statistics.median(min(turn[k] for k in others) / turn[key] for turn in rounds)
        gmacs = count_macs(models[key[:2]], *clip.shape).gmacs
        seconds = statistics.median(turn[key] for turn in rounds)
        rows.append({"model": name, "from": key[0], "plan": key[1], "runtime": key[2]})
        rows[-1] |= {"CPU seconds" if threads == 1 else "seconds": seconds}
        rows[-1] |= {"× the best of torchvision's": ratio}
        rows[-1] |= {"GMACs": gmacs, "largest gap of logits": f"{gaps[key]:.0e}"}
    return rows


def open_all(
    name: str,
    maker: str,
    plan: str,
    model: nn.Module,
    shape: tuple[int, ...],
    runtimes: Sequence[str],
) -> dict[str, Callable[[Tensor], Tensor]]:
    """Open a model in every runtime that was asked for, by way of its files."""
    if (maker, name) in NO_ONNX:
        runtimes = [runtime for runtime in runtimes if runtime != "onnxruntime"]
    threads, folder = torch.get_num_threads(), cache_folder()
    folder.mkdir(parents=True, exist_ok=True)
    onnx = folder / f"benchmark-{FILES_VERSION}-{maker}-{name}-{plan}.onnx"
    straight = onnx.with_suffix(OpenVinoModel.suffix)
    is_straight = maker == "torchvision"
    makers: dict[str, Callable[[], Callable[[Tensor], Tensor]]] = {
        "torch": lambda: model,
        "onnxruntime": lambda: OnnxModel(onnx, threads=threads),
        "openvino": lambda: OpenVinoModel(straight if is_straight else onnx, threads=threads),
    }
    needed = {"onnxruntime": onnx, "openvino": straight if is_straight else onnx}
    missing = {needed[r] for r in runtimes if r in needed and not needed[r].exists()}
    if missing:
        program = export_program(fold_norms(model), input_shape=shape)
    if onnx in missing:
        OnnxModel.write(program, onnx, metadata={})
    if straight in missing:
        import openvino

        openvino.save_model(openvino.convert_model(program), straight, compress_to_fp16=False)
    return {runtime: makers[runtime]() for runtime in runtimes}


def seconds_of(
    run: Callable[[Tensor], Tensor], clip: Tensor, clock: Callable[[], float] = time.process_time
) -> float:
    """Give the seconds that a clip takes."""
    start = clock()
    run(clip)
    return clock() - start


def main() -> None:
    """Print a table."""
    parser = argparse.ArgumentParser(description=(__doc__ or "").splitlines()[0])
    parser.add_argument("models", nargs="*", choices=[[], *PLANS], default=list(PLANS))
    parser.add_argument("--plans", nargs="*", default=())
    parser.add_argument("--runtimes", nargs="*", choices=RUNTIMES, default=RUNTIMES)
    parser.add_argument("--repeats", type=int, default=5)
    parser.add_argument("--threads", type=int, default=1)
    settings = parser.parse_args()
    torch.set_num_threads(settings.threads)
    print(f"PYTHONPATH=src:. python -m benchmarks.speed.runtimes {' '.join(sys.argv[1:])}")
    clock = "processor time" if settings.threads == 1 else "time on the wall"
    load = f"load {os.getloadavg()[0]:.1f}, torch {torch.__version__}"
    print(f"threads: {settings.threads}, {clock}, {load}")
    for name in settings.models:
        rows = compare(
            name, settings.repeats, torch.device("cpu"), settings.plans, settings.runtimes
        )
        for row in rows:
            shown = (f"{v:.3f}" if isinstance(v, float) else str(v) for v in row.values())
            print("| " + " | ".join(shown) + " |", flush=True)


if __name__ == "__main__":
    main()
