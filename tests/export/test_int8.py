"""Files with 8-bit linear layers: what stays in float, what is compared, what is refused."""

from pathlib import Path

import pytest
import torch
from torch import nn

from tests.small_models import tiny_mvit
from tokenselect.export import OnnxModel, OpenVinoModel, ProgramModel, export_int8
from tokenselect.export import int8 as module
from tokenselect.export.int8 import LINEAR, compare_int8, namespace_of

pytestmark = pytest.mark.slow  # tracing a model takes seconds

onnx = pytest.importorskip("onnx")
pytest.importorskip("onnxruntime")


@pytest.fixture(scope="module")
def model() -> nn.Module:
    return tiny_mvit("T0=3-S1=4x5").eval()


@pytest.fixture(scope="module")
def clips(model) -> torch.Tensor:
    return torch.randn(24, 3, *model.default_input, generator=torch.Generator().manual_seed(0))


@pytest.fixture(scope="module")
def written(model, clips, tmp_path_factory):
    folder: Path = tmp_path_factory.mktemp("int8")
    labels = torch.zeros(len(clips), dtype=torch.long)
    report = export_int8(model, folder / "a.onnx", clips=clips, labels=labels, limit=1.0)
    return folder / "a.onnx", report


def test_what_8_bits_change_is_told_of_the_clips_that_did_not_calibrate(written, model, clips):
    path, report = written
    assert report.num_clips == 12
    assert report.changed_choices == 0
    assert 0 < report.moved < 0.1
    with torch.no_grad():
        found, own = OnnxModel(path)(clips[1::2]), model(clips[1::2])
    assert report.agreement == (found.argmax(1) == own.argmax(1)).float().mean().item()
    assert report.top1 == (own.argmax(1) == 0).float().mean().item()
    assert "of the choices changed; accuracy" in str(report)
    assert [file.name for file in path.parent.iterdir()] == ["a.onnx"]


def test_all_that_choices_depend_on_stays_in_float_and_linear_layers_behind_do_not(written):
    graph = onnx.load(written[0]).graph
    made_by = {name: node.op_type for node in graph.node for name in node.output}
    for node in graph.node:
        if node.op_type == "MatMul" and LINEAR in namespace_of(node):
            is_behind = "model.blocks.1." in namespace_of(node)  # the last site is S1
            is_behind = is_behind and "token_selectors" not in namespace_of(node)
            is_8_bit = all(made_by.get(name) == "DequantizeLinear" for name in node.input)
            assert is_8_bit == is_behind, namespace_of(node)


def test_openvino_s_file_itself_is_compared_choices_included(model, clips, tmp_path):
    pytest.importorskip("openvino")
    report = export_int8(model, tmp_path / "a.xml", OpenVinoModel, clips=clips, limit=1.0)
    opened = OpenVinoModel(tmp_path / "a.xml")
    with torch.no_grad():
        found, own = opened(clips[1::2]), model(clips[1::2])
    assert report.moved == pytest.approx(((found - own).norm() / own.norm()).item(), abs=1e-4)
    assert 0 < report.moved < 0.1
    assert report.changed_choices == 0


def test_an_openvino_file_that_answers_otherwise_is_refused(model, clips, tmp_path, monkeypatch):
    pytest.importorskip("openvino")
    convert = OpenVinoModel.convert

    def spoil(source: Path, path: Path, **rest: object) -> None:
        graph = onnx.load(source)
        bias = next(w for w in graph.graph.initializer if w.name.endswith("classifier.bias"))
        shift = torch.arange(-1e3, 0, 1e3 / bias.dims[0]).numpy()
        bias.CopyFrom(onnx.numpy_helper.from_array(shift[: bias.dims[0]], bias.name))
        onnx.save(graph, source)
        convert(source, path, **rest)

    monkeypatch.setattr(OpenVinoModel, "convert", staticmethod(spoil))
    with pytest.raises(ValueError, match="the limit is 2%"):
        export_int8(model, tmp_path / "a.xml", OpenVinoModel, clips=clips)
    assert not list(tmp_path.iterdir())


def test_changes_above_the_limit_are_refused(written, clips):
    with pytest.raises(ValueError, match="the limit is -1%: calibrate on more clips"):
        compare_int8(written[0], written[0], clips, limit=-0.01)


def test_changed_choices_are_counted(written, clips, monkeypatch):
    logits = torch.eye(2)
    answers = iter([logits, torch.tensor([[0, 1], [0, kept]])] for kept in (2, 3))
    monkeypatch.setattr(module, "_choices", lambda path: ["kept"])
    monkeypatch.setattr(module, "_answer", lambda path, clips, names: next(answers))
    assert compare_int8(Path("a"), Path("b"), clips[:2], limit=0.3).changed_choices == 0.25


def test_a_program_of_torch_and_a_single_clip_are_refused(model, clips, tmp_path):
    with pytest.raises(ValueError, match="formats onnx and openvino, got torch"):
        export_int8(model, tmp_path / "a.pt2", ProgramModel, clips=clips)
    with pytest.raises(ValueError, match="at least 2 clips"):
        export_int8(model, tmp_path / "a.onnx", clips=clips[:1])
