"""What 8 bits change: all quantised, linear layers of the blocks, those behind the last selection.

Claim: where all before the selection stays in float, a selected model moves as a dense one does.

    PYTHONPATH=src:. python -m benchmarks.int8 > benchmarks/results/int8.txt

The small model of the package on synthetic actions: 24 clips calibrate, 24 others are compared.
"""

import tempfile
from functools import partial
from pathlib import Path

import torch
from onnxruntime.quantization import CalibrationDataReader, QuantType, quantize_static
from torch import Tensor

from tokenselect import load_model, plan_of, with_plan
from tokenselect.checkpoints import info_of
from tokenselect.data.synthetic import SyntheticActions
from tokenselect.export import OnnxModel
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


if __name__ == "__main__":
    main()
