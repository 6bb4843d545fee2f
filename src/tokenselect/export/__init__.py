"""Models as files that run without this package: `torch.export` programs and ONNX.

Shapes are static but for the batch, since a plan fixes how much is kept; selection is the hard one
of evaluation. No file is there before its answers have been compared with the model's.
"""

from tokenselect.export.export import (
    FORMATS,
    Difference,
    FileFormat,
    compare_answers,
    export_model,
    time_exported,
)
from tokenselect.export.formats import OnnxModel, ProgramModel

__all__ = [
    "FORMATS",
    "Difference",
    "FileFormat",
    "OnnxModel",
    "ProgramModel",
    "compare_answers",
    "export_model",
    "time_exported",
]
