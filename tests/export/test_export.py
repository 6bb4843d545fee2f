"""Exported files against the models they were made from; the models are as small as they can be."""

from functools import partial
from pathlib import Path

import pytest
import torch
from torch import nn

from tests.small_models import tiny_mvit, tiny_swin
from tokenselect.export import FORMATS, compare_answers, export_model, time_exported
from tokenselect.export.formats import ProgramModel, export_program, write_program
from tokenselect.insertion import remove_selectors

pytestmark = pytest.mark.slow  # tracing a model takes seconds, however small it is


@pytest.fixture(scope="module")
def mvit() -> nn.Module:
    return tiny_mvit("T0=3-S1=4x5")


def test_a_program_gives_the_models_logits_in_any_batch(mvit, tmp_path):
    metadata = {"class_names": ["läuft", "sits"]}
    write_program(export_program(mvit), tmp_path / "a.pt2", metadata=metadata)
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
    assert compare_answers(model, program.module()).largest < 1e-6


@pytest.mark.parametrize(
    "build",
    [
        partial(tiny_mvit, "T0=3-S1=4x5"),
        partial(tiny_mvit, "T0=3-S1=4x5", scorer="from-uniform"),
        partial(tiny_mvit, "T0=3-S1=4x5", scorer="taught"),
        partial(tiny_swin, "T0=3-S1=4x5"),
    ],
)
def test_an_onnx_file_gives_the_models_logits_in_onnxruntime(build, tmp_path):
    pytest.importorskip("onnxscript")
    pytest.importorskip("onnxruntime")
    model, path = build(), tmp_path / "deep" / "a.onnx"
    clips = torch.rand(4, 3, *model.default_input)
    told: list[str] = []
    difference = export_model(
        model,
        path,
        FORMATS["onnx"],
        clips=clips,
        metadata={"plan": "T0=3-S1=4x5", "class_names": ["läuft"]},
        tell=told.append,
    )
    assert difference.num_clips == 8
    assert difference.largest < 1e-4
    assert [p.name for p in path.parent.iterdir()] == ["a.onnx"]
    opened = FORMATS["onnx"].open(path)
    assert opened.metadata == {"plan": "T0=3-S1=4x5", "class_names": ["läuft"]}
    assert opened.session.get_inputs()[0].shape == ["batch", 3, *model.default_input]
    assert len(told) == 3


def test_a_swin_program_gives_the_models_logits(tmp_path):
    model = tiny_swin("T0=3-S1=4x5")
    assert export_model(model, tmp_path / "a.pt2", FORMATS["torch"]).largest < 1e-5


class Wrong:
    """A model that is off by a little more than it should be."""

    def __init__(self, model: nn.Module, path: Path) -> None:
        self.model = model

    def __call__(self, video: torch.Tensor) -> torch.Tensor:
        return self.model(video) + 0.01


def test_a_file_that_differs_is_refused_and_not_left_behind(mvit, tmp_path):
    wrong = type(FORMATS["torch"])(".pt2", write_program, partial(Wrong, mvit))
    with pytest.raises(ValueError, match=r"differ from the model's by 0\.01 on 4 clips"):
        export_model(mvit, tmp_path / "a.pt2", wrong)
    assert list(tmp_path.iterdir()) == []


def test_the_dense_model_is_timed_beside_the_selecting_one(tmp_path):
    dense = remove_selectors(tiny_mvit("T0=3"))
    opened: list[str] = []

    def open_file(path: Path) -> nn.Module:
        opened.append(path.name)
        return dense

    untraced = type(FORMATS["torch"])(".pt2", write_program, open_file)
    seconds = time_exported(tmp_path / "a.pt2", dense, untraced, repeats=1)
    assert opened == ["a.pt2", "dense.pt2"]
    assert seconds.keys() == {"selected", "dense"}


def test_selection_without_training_is_exported_too():
    model = tiny_mvit("T0=3-S1=4x5", method="motion")
    assert compare_answers(model, export_program(model).module()).largest < 1e-5
