"""Exported files against the models they were made from; the models are as small as they can be."""

from functools import partial
from pathlib import Path
from typing import ClassVar

import pytest
import torch
from torch import nn

from tests.small_models import tiny_mvit, tiny_swin
from tests.weights.models import scramble
from tokenselect.export import (
    OnnxModel,
    OpenVinoModel,
    ProgramModel,
    compare_logits,
    export_model,
    time_exported,
)
from tokenselect.export.formats import export_program, fold_norms
from tokenselect.insertion import remove_selectors
from tokenselect.models import create_model

pytestmark = pytest.mark.slow  # tracing a model takes seconds, however small it is


@pytest.fixture(scope="module")
def mvit() -> nn.Module:
    return tiny_mvit("T0=3-S1=4x5")


def test_a_program_gives_the_models_logits_in_any_batch(mvit, tmp_path):
    metadata = {"class_names": ["läuft", "sits"]}
    ProgramModel.write(export_program(mvit), tmp_path / "a.pt2", metadata=metadata)
    opened = ProgramModel(tmp_path / "a.pt2")
    assert opened.metadata == metadata
    with torch.no_grad():
        for b in (1, 2, 5):
            video = torch.randn(b, 3, *mvit.default_input)
            torch.testing.assert_close(opened(video), mvit(video), rtol=0, atol=1e-6)


def test_a_model_in_training_is_exported_as_in_evaluation_and_stays_in_training(tmp_path):
    model = tiny_mvit("T0=2").train()
    program = export_program(model)
    assert model.training
    model.eval()
    assert compare_logits(model, program.module()).largest < 1e-6


def spaced_mvit() -> nn.Module:
    """A model whose kept frames were found to repeat each other."""
    model = tiny_mvit("T0=3-S1=4x5", scorer="taught")
    scoring = model.token_selectors["T0"].scoring
    nn.init.normal_(scoring.network.score.weight)
    nn.init.constant_(scoring.network.repetition, 0.7)
    scoring.trust(0.0, 1.0)
    return model


@pytest.mark.parametrize(
    "build",
    [
        partial(tiny_mvit, "T0=3-S1=4x5"),
        partial(tiny_mvit, "T0=3-S1=4x5", scorer="from-uniform"),
        partial(tiny_mvit, "T0=3-S1=4x5", scorer="taught"),
        spaced_mvit,
        partial(tiny_swin, "T0=3-S1=4x5"),
    ],
)
def test_an_onnx_file_gives_the_models_logits_in_onnxruntime(build, tmp_path):
    pytest.importorskip("onnxscript")
    pytest.importorskip("onnxruntime")
    model, path = build(), tmp_path / "deep" / "a.onnx"
    clips = torch.rand(4, 3, *model.default_input)
    told: list[str] = []
    metadata = {"plan": "T0=3-S1=4x5", "class_names": ["läuft"]}
    difference = export_model(
        model, str(path), "onnx", clips=clips, metadata=metadata, tell=told.append
    )
    assert difference.num_clips == 8
    assert difference.largest < 1e-4
    assert [p.name for p in path.parent.iterdir()] == ["a.onnx"]
    opened = OnnxModel(path)
    assert opened.metadata == metadata
    assert opened.session.get_inputs()[0].shape == ["batch", 3, *model.default_input]
    assert len(told) == 3


@pytest.mark.parametrize(
    "build",
    [
        partial(create_model, "mvit_mini"),
        partial(create_model, "mvit_mini", plan="T0_0.6-S4_0.5"),
        partial(create_model, "video_swin_mini", plan="T0_0.6"),
        lambda **_: tiny_swin("T0=3-S1=4x5"),
    ],
)
def test_an_openvino_file_gives_the_models_logits_and_has_its_weights_beside_it(build, tmp_path):
    pytest.importorskip("openvino")
    model = scramble(build(num_classes=5, frames=8, size=32))
    metadata = {"class_names": ["läuft", 'a "b" & <c>']}
    difference = export_model(model, tmp_path / "a.xml", "openvino", metadata=metadata)
    assert difference.largest < 1e-4
    assert sorted(p.name for p in tmp_path.iterdir()) == ["a.bin", "a.xml"]
    opened = OpenVinoModel(tmp_path / "a.xml", threads=1)
    assert opened.metadata == metadata
    assert compare_logits(model, opened).largest < 1e-4


def test_a_swin_program_gives_the_models_logits(tmp_path):
    model = tiny_swin("T0=3-S1=4x5")
    assert export_model(model, tmp_path / "a.pt2", "torch").largest < 1e-5


def test_a_file_says_how_a_video_becomes_its_input(tmp_path):
    model = create_model("mvit_mini", plan="T0_0.5", num_classes=2, frames=4, size=32)
    export_model(model, tmp_path / "a.pt2", "torch")
    told = ProgramModel(tmp_path / "a.pt2").metadata
    assert (told["model"], told["plan"], told["method"]) == ("mvit_mini", "T0_0.5", "stts")
    rule = told["clip_rule"]
    assert (rule["frames"], rule["stride"], rule["size"]) == (4, 4, [32, 32])
    assert rule["short_side"] is None and len(rule["mean"]) == len(rule["std"]) == 3
    assert rule["steps"][2] == "crop 32 × 32 from the centre"


def test_what_cannot_be_exported_is_named(mvit, tmp_path):
    with pytest.raises(ValueError, match="input_shape must be given for a Linear"):
        export_model(nn.Linear(3, 2), tmp_path / "a.pt2", "torch")
    with pytest.raises(ValueError, match=r"5 sides, batch first, .* got \(8, 24, 32\)"):
        export_model(mvit, tmp_path / "a.pt2", "torch", input_shape=(8, 24, 32))
    with pytest.raises(ValueError, match=r"video must be \(b, 3, .* got \(3, 8, 24, 32\)"):
        export_model(mvit, tmp_path / "a.pt2", "torch", input_shape=(3, 8, 24, 32))
    with pytest.raises(ValueError, match="one of onnx, openvino, torch, got 'tflite'"):
        export_model(mvit, tmp_path / "a.tflite", "tflite")
    assert list(tmp_path.iterdir()) == []


class WrongModel(ProgramModel):
    """A file whose answers are off by a little more than they should be."""

    def __call__(self, video: torch.Tensor) -> torch.Tensor:
        return super().__call__(video) + 0.01


def test_a_file_that_differs_is_refused_and_not_left_behind(mvit, tmp_path):
    with pytest.raises(ValueError, match=r"differ from the model's by 0\.01 on 4 clips"):
        export_model(mvit, tmp_path / "a.pt2", WrongModel)
    assert list(tmp_path.iterdir()) == []


class UntracedModel(ProgramModel):
    """Answers nothing, and notes which files were opened."""

    opened: ClassVar[list[str]] = []

    def __init__(self, path: Path) -> None:
        self.opened.append(path.name)

    def __call__(self, video: torch.Tensor) -> torch.Tensor:
        return video


def test_the_dense_model_is_timed_beside_the_selecting_one(tmp_path):
    dense = remove_selectors(tiny_mvit("T0=3"))
    seconds = time_exported(tmp_path / "a.pt2", dense, UntracedModel, repeats=1)
    assert UntracedModel.opened == ["a.pt2", "dense.pt2"]
    assert seconds.keys() == {"selected", "dense"}


def test_selection_without_training_is_exported_too():
    model = tiny_mvit("T0=3-S1=4x5", method="motion")
    assert compare_logits(model, export_program(model).module()).largest < 1e-5


def test_folded_norms_change_no_logits_and_leave_the_model_alone():
    model = tiny_mvit("T0=3-S1=4x5").eval()
    clips = torch.randn(2, 3, *model.default_input)
    with torch.no_grad():
        logits = model(clips)
        folded = fold_norms(model)
        torch.testing.assert_close(folded(clips), logits, rtol=1e-4, atol=1e-5)
        assert torch.equal(model(clips), logits)
    assert folded.blocks[1].norm_mlp.weight.eq(1).all()
    assert not model.blocks[1].norm_mlp.weight.eq(1).all()
