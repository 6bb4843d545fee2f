"""Models as files that run without this package: `torch.export` programs, ONNX and OpenVINO.

Shapes are static but for the batch, since a plan fixes how much is kept; selection is the hard one
of evaluation. No file is there before its answers have been compared with the model's.
"""

from tokenselect.export.export import LogitDifference, compare_logits, export_model, time_exported
from tokenselect.export.formats import (
    FORMATS,
    ExportedModel,
    OnnxModel,
    OpenVinoModel,
    ProgramModel,
)
from tokenselect.export.int8 import Int8Report, export_int8
from tokenselect.export.runtimes import open_runtime, time_runtimes
