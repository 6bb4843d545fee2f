from dataclasses import asdict, replace

import numpy as np
import pytest
import torch

from tokenselect.checkpoints import save_model
from tokenselect.data import write_video
from tokenselect.data.clips import ClipRule, rule_of_recipe
from tokenselect.inference.preprocessor import Preprocessor
from tokenselect.models import create_model
from tokenselect.training.data import build_test_set
from tokenselect.training.sections import DataRecipe, PartRecipe

RULE = ClipRule(4, (32, 48), stride=2)


def frames(count: int = 9, height: int = 36, width: int = 60) -> torch.Tensor:
    generator = torch.Generator().manual_seed(0)
    return torch.randint(0, 256, (count, 3, height, width), generator=generator).byte()


def test_files_tensors_and_arrays_become_one_batch_that_the_model_takes(tmp_path):
    write_video(tmp_path / "a.mp4", frames(), fps=10)
    array = frames(12).permute(0, 2, 3, 1).numpy()
    inputs = Preprocessor(RULE)([tmp_path / "a.mp4", str(tmp_path / "a.mp4"), frames(), array])
    assert inputs["video"].shape == (4, 3, 4, 32, 48)
    model = create_model("mvit_mini", plan="T0=1", num_classes=3, frames=4, size=(32, 48)).eval()
    assert model(**inputs).shape == (4, 3)


def test_views_of_a_video_stand_beside_each_other():
    preprocess = Preprocessor(RULE)
    both = preprocess([frames(), frames(20)], clips=2, crops=3)["video"]
    assert both.shape == (12, 3, 4, 32, 48)
    assert torch.equal(both[6:], preprocess(frames(20), clips=2, crops=3)["video"])


def test_an_array_is_the_tensor_with_colours_last():
    array = frames().permute(0, 2, 3, 1).numpy()
    preprocess = Preprocessor(RULE)
    assert torch.equal(preprocess(array)["video"], preprocess(frames())["video"])


def test_a_saved_model_says_what_it_wants(tmp_path):
    model = create_model("video_swin_mini", num_classes=2, frames=6, size=(64, 32))
    save_model(model, tmp_path)
    rule = Preprocessor.from_pretrained(tmp_path).rule
    assert (rule.frames, rule.size, rule.stride) == (6, (64, 32), 2)


@pytest.mark.parametrize("wrong", [frames().float(), frames()[0], np.zeros((4, 3, 8, 8), np.uint8)])
def test_other_frames_are_refused(wrong):
    with pytest.raises(ValueError, match="frames must be a uint8"):
        Preprocessor(RULE)(wrong)


def test_a_recipe_that_centres_clips_does_so_in_evaluation_and_in_prediction(tmp_path):
    for name in ("wave", "nod"):
        (tmp_path / name).mkdir()
        write_video(tmp_path / name / "a.mp4", frames(), fps=10)
    part = PartRecipe(annotations=".")
    data = DataRecipe(
        source="videos",
        root=str(tmp_path),
        test=part,
        frames=4,
        stride=None,
        size=32,
        center="clip",
    )
    evaluated = build_test_set(data, "test").dataset[0][0]
    predicted = Preprocessor(rule_of_recipe(asdict(data)))(tmp_path / "nod" / "a.mp4")["video"]
    torch.testing.assert_close(predicted, evaluated)
    assert predicted.mean(dim=2).abs().max() < 1e-5
    with pytest.raises(ValueError, match="for videos"):
        build_test_set(replace(data, source="synthetic"), "test")
