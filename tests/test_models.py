from inspect import signature

import pytest
import torch
from safetensors.torch import load_file

from tokenselect import create_model, insert_selectors, list_models
from tokenselect.backbones.video_swin import video_swin_b_w16
from tokenselect.measure.cost import count_macs
from tokenselect.models import ASSETS
from tokenselect.training.sections import ModelRecipe


@pytest.mark.parametrize("name", list_models())
def test_every_model_builds_with_its_classes(name):
    with torch.device("meta"):
        model = create_model(name, num_classes=11).eval()
        assert model(torch.empty(1, 3, *model.default_input)).shape == (1, 11)


@pytest.mark.parametrize(
    ("name", "parameters"), [("mvit_b16", 36_610_672), ("video_swin_b", 88_048_984)]
)
def test_parameters_are_those_of_the_paper(name, parameters):
    with torch.device("meta"):
        model = create_model(name)
    assert sum(p.numel() for p in model.parameters()) == parameters


@pytest.mark.slow
@pytest.mark.parametrize(
    ("name", "plan", "gmacs"),
    [
        ("mvit_b16", "dense", 70.6),
        ("mvit_b16", "T0_0.9-S4_0.9", 55.9),
        ("mvit_b16", "T0_0.8-S4_0.9", 46.8),
        ("mvit_b16", "T0_0.6-S4_0.9", 38.1),
        ("mvit_b16", "T0_0.6", 41.2),
        ("mvit_b16", "T4_0.3", 37.4),
        ("video_swin_b", "dense", 281.3),
    ],
)
def test_multiply_adds_are_those_counted_for_the_paper(name, plan, gmacs):
    with torch.device("meta"):
        model = create_model(name, plan=plan)
    count = count_macs(model, 1, 3, *model.default_input)
    selectors = count.by_module.get("token_selectors.T0", 0)
    selectors += count.by_module.get("token_selectors.S4", 0)
    assert selectors < 0.01 * count.total
    assert count.gmacs - selectors / 1e9 == pytest.approx(gmacs, rel=0.01)


def test_small_models_are_small():
    for name in ("mvit_mini", "video_swin_mini"):
        with torch.device("meta"):
            model = create_model(name)
        assert count_macs(model, 1, 3, *model.default_input).gmacs < 0.3


def test_an_unknown_model_is_refused_by_name():
    with pytest.raises(ValueError, match=r"'mvit_b17'.*mean 'mvit_b16'.*video_swin_b"):
        create_model("mvit_b17")


def test_no_classes_are_refused():
    with pytest.raises(ValueError, match="num_classes must be at least 1, got 0"):
        create_model("mvit_mini", num_classes=0)


def test_what_the_builder_takes_is_passed_on_and_recorded():
    model = create_model("video_swin_mini", fit_windows=False, drop_path=0.3, dropout=0.2)
    assert not model.blocks[0].attention.fit_windows and model.dropout.p == 0.2
    assert model.settings["drop_path"] == 0.3 and model.settings["fit_windows"] is False


def test_what_the_builder_does_not_take_is_refused_with_what_it_takes():
    message = r"mvit_mini does not take 'fit_windows'; it takes num_classes, frames, size"
    with pytest.raises(TypeError, match=message):
        create_model("mvit_mini", fit_windows=False)


def test_a_builder_shows_its_own_arguments():
    parameters = signature(video_swin_b_w16).parameters
    assert parameters["num_classes"].default == 174 and "window" not in parameters


def test_library_and_recipes_have_the_same_default_scorer():
    defaults = {signature(f).parameters["scorer"].default for f in (create_model, insert_selectors)}
    assert defaults == {ModelRecipe().scorer} == {"taught"}


@pytest.mark.parametrize("name", ["mvit_mini", "video_swin_mini"])
def test_generated_weights_start_a_small_model_of_any_size(name, caplog):
    """The package has them; the classifier is the model's own, and nobody is warned of that."""
    torch.manual_seed(0)
    settings = {"num_classes": 3, "frames": 6, "size": 32}
    fresh = create_model(name, **settings)
    torch.manual_seed(0)
    model = create_model(name, weights="generated", **settings)
    kept = load_file(ASSETS / f"generated_{name}.safetensors")
    own = model.state_dict()
    assert kept.keys() == {key for key in own if not key.startswith("classifier.")}
    assert all(
        torch.equal(own[key], kept[key]) for key in kept if own[key].shape == kept[key].shape
    )
    assert torch.equal(model.norm.weight, kept["norm.weight"])
    assert torch.equal(model.classifier.weight, fresh.classifier.weight)
    assert model(torch.randn(1, 3, 6, 32, 32)).isfinite().all()
    assert not [record for record in caplog.records if record.levelname == "WARNING"]


def test_weights_that_are_nowhere_are_refused_with_those_that_are():
    with pytest.raises(ValueError, match="those of mvit_mini are generated"):
        create_model("mvit_mini", weights="imagenet")
    with pytest.raises(ValueError, match="those of video_swin_t are kinetics400"):
        create_model("video_swin_t", weights="generated")
