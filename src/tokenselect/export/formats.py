"""The files that models are exported to: `torch.export` programs, ONNX, and OpenVINO's IR."""

import copy
import io
import json
import tempfile
import warnings
from abc import ABC, abstractmethod
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any, ClassVar, cast

import torch
import torch.nn.functional as F
from torch import Tensor, nn
from torch.export import Dim, ExportedProgram
from torch.overrides import TorchFunctionMode

from tokenselect.adapters import is_supported
from tokenselect.adapters.language import LanguageAdapter
from tokenselect.backbones.fast_cpu import is_untouched
from tokenselect.backbones.mvit import MViT
from tokenselect.backbones.mvit.block import Block
from tokenselect.extras import require
from tokenselect.insertion import adapter_of, selectors_of, vision_tower

MAX_BATCH = 2**16
CLIPS, LOGITS = "video", "logits"  # input and output of the files
TOWER = ("tokens", "kept")  # outputs of a language model's vision tower, before its features
METADATA = "tokenselect.json"  # inside a .pt2 file
MOST_COMPILED = 3  # batch sizes of an IR that are kept ready
RUNTIME_INFO = ["tokenselect", "metadata"]  # inside an IR


class LogitsOf(nn.Module):
    """Unwraps the answer of a host library, which is the logits, has them or begins with them.

    A model that `takes_list` wants its clips in a list of one.
    """

    def __init__(self, model: nn.Module, *, takes_list: bool = False) -> None:
        super().__init__()
        self.model, self.takes_list = model, takes_list

    def forward(self, video: Tensor) -> Tensor:
        """Map clips to (b, num_classes) logits."""
        answer = self.model([video] if self.takes_list else video)
        if isinstance(answer, Tensor):
            return answer
        return answer.logits if hasattr(answer, "logits") else answer[0]


class FlatAttention(TorchFunctionMode):
    """Calls attention on five dimensions, as Hiera has it, as attention on four: ONNX knows it."""

    def __torch_function__(
        self, function: Any, types: Any, positional: Any = (), named: Any = None
    ) -> Any:
        if function is not F.scaled_dot_product_attention or positional[0].ndim <= 4:
            return function(*positional, **(named or {}))
        flat = [x.flatten(0, -4) for x in positional[:3]]
        mixed = function(*flat, *positional[3:], **(named or {}))
        return mixed.unflatten(0, positional[0].shape[:-3])


def what_runs(
    model: nn.Module, input_shape: tuple[int, ...] | None
) -> tuple[nn.Module, tuple[int, ...]]:
    """Give the module of one tensor that stands in a file for a model, and its input's shape.

    Args:
        model: of a language model, it is the vision tower. One of ours knows its own input.
        input_shape: batch first; the file takes every batch, whatever stands here. With 4 sides, a
            clip as a batch of frames: the file takes clips of this length, one at a time. With 3,
            frames, rows and columns of patches of a language model's video.
    """
    is_known = is_supported(model) or selectors_of(model) is not None
    adapter = adapter_of(model) if is_known else None
    if isinstance(adapter, LanguageAdapter):
        if input_shape is None or len(input_shape) != 3:
            raise ValueError(
                f"of a {type(model).__name__} the vision tower is exported: input_shape must be "
                f"frames, rows and columns of patches, got {input_shape}"
            )
        tower = vision_tower(model, [input_shape])
        return tower, cast(tuple[int, ...], tower.input_shape)
    if input_shape is None:
        if not hasattr(model, "default_input"):
            raise ValueError(
                f"input_shape must be given for a {type(model).__name__}: only the models of "
                "create_model know their own"
            )
        input_shape = (1, 3, *cast(tuple[int, int, int], model.default_input))
    if len(input_shape) not in (4, 5):
        raise ValueError(
            "input_shape must have 5 sides, batch first, or the 4 of a clip's frames, got "
            f"{input_shape}"
        )
    batch = input_shape[0] if len(input_shape) == 4 else 1
    takes_list = adapter is not None and adapter.takes_list
    return LogitsOf(model, takes_list=takes_list), (batch, *input_shape[1:])


def fold_norms(model: nn.Module) -> nn.Module:
    """Copy an MViT of ours, its norms' scales and shifts in the layers that read them."""
    if not isinstance(model, MViT):
        return model
    copied = copy.deepcopy(model)
    for block in copied.blocks:
        if isinstance(block, Block) and is_untouched(*block.children()):
            block.fold_norms()
    return copied


def export_program(
    model: nn.Module, *, input_shape: tuple[int, ...] | None = None
) -> ExportedProgram:
    """Trace a model in evaluation mode, at one input size (None for its own), for every batch."""
    runner, shape = what_runs(model, input_shape)
    is_batch, was_training = len(shape) == 5, model.training
    device = next(model.parameters()).device
    example = torch.zeros((2, *shape[1:]) if is_batch else shape, device=device)
    runner.eval()
    try:
        with torch.no_grad(), FlatAttention():
            dynamic = ({0: Dim("batch", min=1, max=MAX_BATCH)},) if is_batch else None
            return torch.export.export(runner, (example,), dynamic_shapes=dynamic)
    finally:
        model.train(was_training)


class ExportedModel(ABC):
    """A file as a function of clips. `write` makes the file, the constructor opens it."""

    suffix: ClassVar[str]  # of its files
    metadata: dict[str, Any]  # what `write` was told to keep

    @staticmethod
    @abstractmethod
    def write(program: ExportedProgram, path: Path, *, metadata: Mapping[str, Any]) -> None:
        """Save a program of `export_program`; the metadata are kept in the file as JSON."""

    @staticmethod
    def files(path: Path) -> list[Path]:
        """List what belongs to a file: itself, and what lies beside it."""
        return [path]

    @abstractmethod
    def __init__(self, path: str | Path) -> None:
        """Open a file."""

    @abstractmethod
    def __call__(self, video: Tensor) -> Any:
        """Map clips of the exported shape, in any batch, to (b, num_classes) logits, or what goes
        into a vision tower to the tuple of what comes out."""


def one_or_all(arrays: Sequence[Any]) -> Tensor | tuple[Tensor, ...]:
    """Give the only output, or all of them."""
    outputs = tuple(map(torch.from_numpy, arrays))
    return outputs[0] if len(outputs) == 1 else outputs


class ProgramModel(ExportedModel):
    """A `.pt2` file, run by torch."""

    suffix = ".pt2"

    @staticmethod
    def write(program: ExportedProgram, path: Path, *, metadata: Mapping[str, Any]) -> None:
        """Save a program with its metadata."""
        file = io.BytesIO()  # on a full disk, torch's own writer ends the whole process
        torch.export.save(program, file, extra_files={METADATA: json.dumps(dict(metadata))})
        path.write_bytes(file.getbuffer())

    def __init__(self, path: str | Path) -> None:
        files = {METADATA: ""}
        self.module = torch.export.load(path, extra_files=files).module()
        self.metadata = json.loads(files[METADATA] or "{}")

    @torch.no_grad()
    def __call__(self, video: Tensor) -> Any:
        """Run the program."""
        return self.module(video)


class OnnxModel(ExportedModel):
    """An ONNX file, from `video` to `logits`, run by ONNX Runtime."""

    suffix = ".onnx"

    @staticmethod
    def write(program: ExportedProgram, path: Path, *, metadata: Mapping[str, Any]) -> None:
        """Save a program as ONNX; each entry of the metadata is one of the file's properties."""
        require("onnxscript", extra="onnx", purpose="ONNX export")
        num_features = len(program.graph_signature.user_outputs) - len(TOWER)
        outputs = [*TOWER, *(f"features_{i}" for i in range(num_features))]
        # with gradients, attention would be taken apart in another way
        with torch.no_grad(), warnings.catch_warnings():
            warnings.simplefilter("ignore", FutureWarning)  # of torch's own making
            try:
                converted = torch.onnx.export(
                    program,
                    input_names=[CLIPS],
                    output_names=[LOGITS] if num_features < 0 else outputs,
                    dynamic_shapes=({0: "batch"},) if program.range_constraints else None,
                    dynamo=True,
                    verbose=False,
                )
            except torch.onnx.OnnxExporterError as error:
                cause: BaseException = error
                while cause.__cause__ is not None:
                    cause = cause.__cause__
                raise ValueError(f"torch cannot write this model as ONNX: {cause}") from error
        assert converted is not None
        for name, value in metadata.items():
            converted.model.metadata_props[name] = json.dumps(value)
        converted.save(path)

    def __init__(self, path: str | Path, *, threads: int | None = None) -> None:
        onnxruntime: Any = require("onnxruntime", extra="onnx", purpose="an ONNX file")
        options = onnxruntime.SessionOptions()
        if threads is not None:
            options.intra_op_num_threads = threads
        self.session = onnxruntime.InferenceSession(
            str(path), options, providers=onnxruntime.get_available_providers()
        )
        kept = self.session.get_modelmeta().custom_metadata_map
        self.metadata = {name: json.loads(text) for name, text in kept.items()}

    def __call__(self, video: Tensor) -> Any:
        """Run the graph."""
        return one_or_all(self.session.run(None, {CLIPS: video.cpu().numpy()}))


class OpenVinoModel(ExportedModel):
    """An IR of OpenVINO, `.xml` with its weights in a `.bin` beside it, run on the CPU."""

    suffix = ".xml"

    @staticmethod
    def write(program: ExportedProgram, path: Path, *, metadata: Mapping[str, Any]) -> None:
        """Save a program as IR in full precision, by way of ONNX, which keeps all shapes."""
        require("openvino", extra="openvino", purpose="OpenVINO export")
        with tempfile.TemporaryDirectory() as folder:
            between = Path(folder) / f"model{OnnxModel.suffix}"
            OnnxModel.write(program, between, metadata={})
            OpenVinoModel.convert(between, path, metadata=metadata)

    @staticmethod
    def convert(source: Path, path: Path, *, metadata: Mapping[str, Any]) -> None:
        """Save an ONNX file as IR."""
        openvino: Any = require("openvino", extra="openvino", purpose="OpenVINO export")
        converted = openvino.convert_model(source)
        converted.set_rt_info(json.dumps(dict(metadata)), RUNTIME_INFO)
        try:
            openvino.save_model(converted, path, compress_to_fp16=False)
        except RuntimeError as error:  # that is how OpenVINO tells of a full disk
            raise OSError(str(error).splitlines()[0]) from error

    @staticmethod
    def files(path: Path) -> list[Path]:
        """List the graph and the weights."""
        return [path, path.with_suffix(".bin")]

    def __init__(self, path: str | Path, *, threads: int | None = None) -> None:
        openvino: Any = require("openvino", extra="openvino", purpose="an OpenVINO file")
        model = openvino.Core().read_model(path)
        has_metadata = model.has_rt_info(RUNTIME_INFO)
        self.metadata = json.loads(model.get_rt_info(RUNTIME_INFO).value) if has_metadata else {}
        self.settings: dict[str, Any] = {"INFERENCE_PRECISION_HINT": "f32"}  # else bf16
        if threads is not None:
            self.settings["INFERENCE_NUM_THREADS"] = threads
        self.model, self.core = model, openvino.Core()
        self.compiled: dict[int, Any] = {}

    def __call__(self, video: Tensor) -> Any:
        """Run the graph; it is compiled once for each batch size, with all its shapes known."""
        if len(video) not in self.compiled:
            if len(self.compiled) == MOST_COMPILED:
                self.compiled.pop(next(iter(self.compiled)))
            self.model.reshape(list(video.shape))
            self.compiled[len(video)] = self.core.compile_model(self.model, "CPU", self.settings)
        found = self.compiled[len(video)]([video.cpu().numpy()])
        return one_or_all([found[index] for index in range(len(found))])


FORMATS: dict[str, type[ExportedModel]] = {
    "onnx": OnnxModel,
    "openvino": OpenVinoModel,
    "torch": ProgramModel,
}
