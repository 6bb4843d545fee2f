"""One call shows what a model keeps of a clip."""

import pytest
import torch

import tokenselect
from tokenselect.data.sources import open_sample
from tokenselect.inference.explain import explain_video
from tokenselect.measure.cost import be_silent

SMALL = {"num_classes": 3, "frames": 8, "size": 32}


def test_a_loaded_model_is_explained_dense_and_under_its_own_plan():
    model = tokenselect.load_model()
    explanation = tokenselect.explain(model, "sample:1")
    assert [plan.plan for plan in explanation.plans] == ["dense", "T0_0.5-S4_0.5"]
    assert explanation.model == "mvit_mini" and explanation.class_names == model.info.class_names
    models = [tokenselect.with_plan(model, "dense"), model]
    by_hand = explain_video(models, open_sample(1), name="1", repeats=0, tell=be_silent)
    for one, other in zip(explanation.plans, by_hand.plans, strict=True):
        assert torch.equal(one.probabilities, other.probabilities)


def test_frames_and_several_plans_are_taken():
    model = tokenselect.create_model("mvit_mini", plan="T0_0.5", **SMALL).eval()
    frames = torch.randint(256, (20, 3, 40, 52), dtype=torch.uint8)
    explanation = tokenselect.explain(model, frames, plan=["T0_0.5", "T0_0.25"])
    assert [plan.plan for plan in explanation.plans] == ["dense", "T0_0.5", "T0_0.25"]
    assert explanation.plans[1].gmacs > explanation.plans[2].gmacs
    assert len(explanation.clip.numbers) == 8


def test_a_dense_model_is_explained_by_a_method_that_needs_no_training():
    model = tokenselect.create_model("mvit_mini", **SMALL).eval()
    frames = torch.randint(256, (8, 3, 32, 32), dtype=torch.uint8)
    explanation = tokenselect.explain(model, frames)
    assert len(explanation.plans) == 2 and explanation.notes == []


def test_several_videos_are_refused(tmp_path):
    model = tokenselect.create_model("mvit_mini", **SMALL).eval()
    with pytest.raises(ValueError, match="explain takes one video, samples stands for 8"):
        tokenselect.explain(model, "samples")
