"""Where OpenVINO spends the time of a clip, by kind of node, from its own counters.

    PYTHONPATH=src:. python -m benchmarks.speed.openvino_nodes FILE.onnx

One thread, the fastest of three runs of every node. The counters read the clock on the wall, so of
them only shares are taken, and of the processor time of a clip the fastest. Products and attention
are shown with their multiply-adds a second, beside those of torch's plain products of such sizes.
"""

import math
import sys
import time
from collections import Counter
from pathlib import Path
from typing import Any

import torch

from tokenselect.export import OpenVinoModel

SHOWN = 12
PRODUCTS = ((1569, 384, 384), (1569, 384, 1536), (1569, 1536, 384), (393, 768, 3072))
ATTENTION = "attention"


def count_gmacs(node: Any) -> tuple[str, float]:
    """Give a node's kind, and its multiply-adds where it is a product or attention."""
    kind = node.get_rt_info()["layerType"].astype(str)
    inputs = [list(port.get_source_output().get_shape()) for port in node.inputs()]
    out = list(node.output(0).get_shape()) if node.outputs() else []
    if kind == "FullyConnected":
        return kind, math.prod(out) * inputs[0][-1] / 1e9
    if kind == "Subgraph" and len(inputs) >= 3 and all(len(shape) == 4 for shape in inputs[:3]):
        return ATTENTION, 2 * math.prod(out) * inputs[1][-1] / 1e9  # keys lie (b, heads, d, keys)
    return kind, 0.0


def main(path: Path) -> None:
    """Print milliseconds, count and multiply-adds of each kind, most first."""
    model = OpenVinoModel(path, threads=1)
    model.settings["PERF_COUNT"] = True
    shape = model.model.inputs[0].partial_shape
    clip = torch.randn(1, *(shape[axis].get_length() for axis in range(1, 5)))
    model(clip)
    request, best, whole = model.compiled[1].create_infer_request(), {}, math.inf
    for _ in range(3):
        start = time.process_time()
        request.infer([clip.numpy()])
        whole = min(whole, time.process_time() - start)
        for node in request.profiling_info:
            seconds = node.real_time.total_seconds()
            best[node.node_name] = min(best.get(node.node_name, seconds), seconds)
    spent: Counter[str] = Counter()
    counts: Counter[str] = Counter()
    gmacs: Counter[str] = Counter()
    for node in model.compiled[1].get_runtime_model().get_ordered_ops():
        kind, work = count_gmacs(node)
        seconds = best.get(node.get_friendly_name(), 0.0)
        spent[kind] += seconds
        counts[kind] += seconds > 0
        gmacs[kind] += work
    print(f"{path.name}: {1e3 * whole:.0f} ms, {gmacs.total():.1f} GMACs in products")
    for kind, counted in spent.most_common(SHOWN):
        share = counted / spent.total()
        shown, rate = f"{1e3 * share * whole:.1f} ms | {share:.1%}", "–"
        if gmacs[kind] and share:
            rate = f"{gmacs[kind]:.1f} GMACs, {gmacs[kind] / (share * whole):.1f} a second"
        print(f"| {kind} | {counts[kind]} | {shown} | {rate} |", flush=True)


def time_products() -> None:
    """Print what torch's products reach on one thread: the fastest of 20."""
    torch.set_num_threads(1)
    for n, c, k in PRODUCTS:
        left, right, out = torch.randn(n, c), torch.randn(c, k), torch.empty(n, k)
        seconds = []
        for _ in range(20):
            start = time.process_time()
            torch.mm(left, right, out=out)
            seconds.append(time.process_time() - start)
        print(f"torch, {n}×{c} by {c}×{k}: {n * c * k / 1e9 / min(seconds):.1f} GMACs a second")


if __name__ == "__main__":
    time_products()
    for name in sys.argv[1:]:
        main(Path(name))
