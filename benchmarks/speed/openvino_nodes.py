"""Where OpenVINO spends the time of a clip, by kind of node, from its own counters.

    PYTHONPATH=src:. python -m benchmarks.speed.openvino_nodes FILE.onnx

One thread, the fastest of three runs of every node.
"""

import sys
from collections import Counter
from pathlib import Path

import torch

from tokenselect.export import OpenVinoModel

SHOWN = 12


def main(path: Path) -> None:
    """Print milliseconds and count of each kind, most first."""
    model = OpenVinoModel(path, threads=1)
    model.settings["PERF_COUNT"] = True
    shape = model.model.inputs[0].partial_shape
    clip = torch.randn(1, *(shape[axis].get_length() for axis in range(1, 5)))
    model(clip)
    request, best = model.compiled[1].create_infer_request(), {}
    for _ in range(3):
        request.infer([clip.numpy()])
        for node in request.profiling_info:
            seconds = node.real_time.total_seconds()
            kind, fastest = node.node_type, best.get(node.node_name, (seconds, ""))[0]
            best[node.node_name] = (min(fastest, seconds), kind)
    spent: Counter[str] = Counter()
    counts = Counter(kind for seconds, kind in best.values() if seconds)
    for seconds, kind in best.values():
        spent[kind] += seconds
    print(f"{path.name}: {1e3 * spent.total():.0f} ms")
    for kind, seconds in spent.most_common(SHOWN):
        print(
            f"| {kind} | {counts[kind]} | {1e3 * seconds:.1f} ms | {seconds / spent.total():.1%} |"
        )


if __name__ == "__main__":
    for name in sys.argv[1:]:
        main(Path(name))
