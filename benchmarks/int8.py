"""What 8 bits change: all quantised, linear layers of the blocks, those behind the last selection.

Claim: where all before the selection stays in float, a selected model moves as a dense one does.

    PYTHONPATH=src:. python -m benchmarks.int8 > benchmarks/results/int8.txt

The small model of the package on synthetic actions: 24 clips calibrate, 24 others are compared, in
ONNX Runtime and in OpenVINO; where NNCF is installed, beside its quantisation of the same layers.
With an ONNX file of `benchmarks.speed.runtimes`, what 8 bits gain in it on one thread:

    PYTHONPATH=src:. python -m benchmarks.int8 FILE.onnx > benchmarks/results/int8_speed.txt
"""

import importlib.util
import statistics
import sys
import tempfile
from functools import partial
from pathlib import Path

import torch
from onnxruntime.quantization import CalibrationDataReader, QuantType, quantize_static
from torch import Tensor

from benchmarks.speed.runtimes import seconds_of
from tokenselect import load_model, plan_of, with_plan
from tokenselect.checkpoints import info_of
from tokenselect.data.synthetic import SyntheticActions
from tokenselect.export import OnnxModel, OpenVinoModel
from tokenselect.export.formats import export_program
from tokenselect.export.int8 import compare_int8, quantise_onnx


class Clips(CalibrationDataReader):
    """Hands out clips one by one."""

    def __init__(self, clips: Tensor) -> None:
        self.clips = iter(clips.split(1))

    def get_next(self) -> dict[str, object] | None:
        """Give the next clip."""
        clip = next(self.clips, None)
        return None if clip is None else {"video": clip.numpy()}


def quantise_all(source: Path, target: Path, clips: Tensor) -> None:
    """Quantise as ONNX Runtime does by itself."""
    kinds = {"activation_type": QuantType.QUInt8, "weight_type": QuantType.QInt8}
    quantize_static(str(source), str(target), Clips(clips), **kinds)


WAYS = {
    "all": quantise_all,
    "blocks": partial(quantise_onnx, behind_sites=False),
    "behind the last selection": quantise_onnx,
}


def main() -> None:
    """Compare both ways, for the model with its plan and dense."""
    torch.set_num_threads(1)
    own = load_model()
    rule = info_of(own).clip_rule
    data = SyntheticActions(num_clips=48, frames=rule.frames, size=rule.size, seed=5)
    clips = torch.stack([data[number][0] for number in range(48)])
    labels = torch.tensor([data[number][1] for number in range(48)])
    print("PYTHONPATH=src:. python -m benchmarks.int8")
    with tempfile.TemporaryDirectory() as name:
        exact, target = Path(name) / "float.onnx", Path(name) / "int8.onnx"
        for model in (own, with_plan(own, "dense")):
            OnnxModel.write(export_program(model), exact, metadata={})
            for way, quantise in WAYS.items():
                quantise(exact, target, clips[:24])
                report = compare_int8(exact, target, clips[24:], labels[24:], limit=1.0)
                print(f"{plan_of(model)}, {way}: {report}", flush=True)
            converted = target.with_suffix(".xml")
            makers = {"converted": partial(OpenVinoModel.convert, target, metadata={})}
            if importlib.util.find_spec("nncf"):
                makers["NNCF"] = partial(quantise_by_nncf, exact, target, clips=clips[:24])
            for maker, make in makers.items():
                make(path=converted)
                report = compare_int8(exact, converted, clips[24:], labels[24:], limit=1.0)
                opened = OpenVinoModel(converted, threads=1)
                seconds = [seconds_of(opened, clips[:1]) for _ in range(12)][2:]
                median = f"{1e3 * statistics.median(seconds):.1f} ms"
                print(f"{plan_of(model)}, OpenVINO, {maker}, {median}: {report}", flush=True)


def quantise_by_nncf(exact: Path, like: Path, *, path: Path, clips: Tensor) -> None:
    """Quantise by NNCF the layers that another file has in 8 bits."""
    import nncf
    import onnx
    import openvino

    graph = onnx.load(like).graph
    made_by = {name: node.op_type for node in graph.node for name in node.output}
    wanted = {
        node.name
        for node in graph.node
        if node.op_type == "MatMul" and made_by.get(node.input[1]) == "DequantizeLinear"
    }
    model = openvino.convert_model(exact)
    model.reshape([1, *clips.shape[1:]])
    ops = [(op.get_friendly_name(), op.get_type_name()) for op in model.get_ops()]
    passive = ("Constant", "Parameter", "Result")
    ignored = [name for name, kind in ops if kind not in passive and name not in wanted]
    quantised = nncf.quantize(
        model,
        nncf.Dataset([clip.numpy() for clip in clips.split(1)]),
        subset_size=len(clips),
        model_type=nncf.ModelType.TRANSFORMER,
        ignored_scope=nncf.IgnoredScope(names=ignored, validate=False),
    )
    quantised.reshape([-1, *clips.shape[1:]])
    openvino.save_model(quantised, path, compress_to_fp16=False)


def time_file(exact: Path, repeats: int = 3) -> None:
    """Time a file in float and in 8 bits, in turns, by processor time."""
    with tempfile.TemporaryDirectory() as name:
        target = Path(name) / "int8.onnx"
        shape = OnnxModel(exact, threads=1).session.get_inputs()[0].shape
        clips = torch.randn(2, *shape[1:])
        quantise_onnx(exact, target, clips)
        runners = {
            (kind.__name__, bits): kind(path, threads=1)
            for kind in (OnnxModel, OpenVinoModel)
            for bits, path in {"float": exact, "8 bits": target}.items()
        }
        turns = [
            {key: seconds_of(run, clips[:1]) for key, run in runners.items()}
            for _ in range(repeats + 1)
        ][1:]
        print(f"PYTHONPATH=src:. python -m benchmarks.int8 {exact.name} (one thread, CPU seconds)")
        for key in runners:
            print(*key, f"{statistics.median(turn[key] for turn in turns):.3f}", flush=True)


if __name__ == "__main__":
    time_file(Path(sys.argv[1])) if sys.argv[1:] else main()
