import json

import pytest
import torch
from safetensors import safe_open
from safetensors.torch import load_file, save_file
from torch import nn

from tests.weights.models import clips, scramble
from tokenselect.backbones.mvit import mvit_mini
from tokenselect.checkpoints import load_model, plan_of, save_model
from tokenselect.insertion import insert_selectors, remove_selectors, selectors_of
from tokenselect.models import create_model

NAMES = ["run", "jump", "sit"]
SMALL = {"num_classes": 3, "frames": 6, "size": (64, 32)}


def small_model(name: str = "mvit_mini", plan: str = "T0=2-S1=7x5", **settings: str) -> nn.Module:
    return scramble(create_model(name, plan=plan, **SMALL, **settings))


@torch.no_grad()
def logits_of(model: nn.Module) -> torch.Tensor:
    return model(clips(model))


@pytest.mark.parametrize("name", ["mvit_mini", "video_swin_mini"])
def test_a_saved_model_comes_back_with_its_plan_names_and_logits(name, tmp_path):
    model = small_model(name)
    file = save_model(model, tmp_path / "model", class_names=NAMES, metadata={"step": 7})
    loaded = load_model(tmp_path / "model")
    assert file == tmp_path / "model" / "model.safetensors"
    assert str(plan_of(loaded)) == "T0=2-S1=7x5"
    assert loaded.info.class_names == NAMES
    assert loaded.info.metadata["step"] == 7
    assert not loaded.training
    assert torch.equal(logits_of(loaded), logits_of(model))


def test_how_the_selectors_were_built_comes_back_too(tmp_path):
    model = remove_selectors(small_model())
    insert_selectors(model, "S1=5x4", method="stts-sampled", scorer="released", stride=(2, 1))
    scramble(model)
    loaded = load_model(save_model(model, tmp_path / "a.safetensors"))
    selector = selectors_of(loaded)["S1"]
    assert selector.stride == (2, 1)
    assert selector.relaxation.method == "sampled"
    assert torch.equal(logits_of(loaded), logits_of(model))


def test_a_model_of_a_builder_function_is_saved_with_all_it_was_built_with(tmp_path):
    model = scramble(mvit_mini(**SMALL, drop_path=0.3, dropout=0.2))
    loaded = load_model(save_model(model, tmp_path / "a.safetensors"))
    assert loaded.settings == model.settings
    assert (loaded.settings["drop_path"], loaded.dropout.p) == (0.3, 0.2)
    assert torch.equal(logits_of(loaded), logits_of(model))


def test_settings_that_change_the_forward_come_back(tmp_path):
    model = scramble(create_model("video_swin_mini", fit_windows=False, **SMALL))
    loaded = load_model(save_model(model, tmp_path / "a.safetensors"))
    assert not loaded.blocks[0].attention.fit_windows
    assert torch.equal(logits_of(loaded), logits_of(model))


def test_saving_a_loaded_model_keeps_its_names_and_metadata(tmp_path):
    first = save_model(small_model(), tmp_path / "a", class_names=NAMES, metadata={"step": 7})
    second = save_model(load_model(first), tmp_path / "b", metadata={"results": {"top-1": 0.5}})
    info = load_model(second).info
    assert info.class_names == NAMES
    assert info.metadata == {"step": 7, "results": {"top-1": 0.5}}


def test_the_header_is_json_that_any_reader_of_safetensors_sees(tmp_path):
    file = save_model(small_model(), tmp_path / "a.safetensors", class_names=NAMES)
    with safe_open(file, framework="pt") as opened:
        header = opened.metadata()
    described = json.loads(header["model"])
    assert described["name"] == "mvit_mini"
    assert described["size"] == [64, 32]
    assert json.loads(header["class_names"]) == NAMES


def test_a_file_of_0_1_is_read(tmp_path):
    """It names fewer settings and spells the license its own way."""
    model = small_model(scorer="paper")
    described = {"name": "mvit_mini", "num_classes": 3, "frames": 6, "size": [64, 32]}
    selection = {"method": "stts", "scorer": "paper", "num_samples": 500, "stride": None}
    described |= {"plan": "T0=2-S1=7x5", "selection": {**selection, "is_tokenwise": False}}
    header = {"model": described, "class_names": NAMES, "licence": "mit"}
    text = {name: json.dumps(value) for name, value in header.items()}
    save_file(model.state_dict(), tmp_path / "model.safetensors", metadata=text)
    loaded = load_model(tmp_path)
    assert torch.equal(logits_of(loaded), logits_of(model))
    assert loaded.info.metadata == {"license": "mit"} and loaded.info.class_names == NAMES


def test_a_plan_in_place_of_the_saved_one_keeps_the_selectors_of_its_sites(tmp_path):
    model = small_model()
    file = save_model(model, tmp_path / "a.safetensors")
    fewer = load_model(file, plan="T0=3")
    expected, kept = (selectors_of(one)["T0"].state_dict() for one in (model, fewer))
    assert all(torch.equal(kept[name], value) for name, value in expected.items())
    assert selectors_of(load_model(file, plan="dense")) is None
    assert load_model(file, plan="T2=2", method="motion")(clips(model)).shape == (2, 3)


def test_a_plan_with_an_untrained_site_is_refused(tmp_path):
    file = save_model(small_model(), tmp_path / "a.safetensors")
    with pytest.raises(ValueError, match=r"'T0=2-S2=4x4' selects at S2.* no trained selector"):
        load_model(file, plan="T0=2-S2=4x4")


def test_class_names_must_be_as_many_as_outputs(tmp_path):
    with pytest.raises(ValueError, match="class_names must be 3, one per output, got 2"):
        save_model(small_model(), tmp_path, class_names=["a", "b"])


def test_a_file_whose_names_are_not_as_many_as_its_classes_is_refused(tmp_path):
    file = save_model(small_model(), tmp_path)
    text = {"model": json.dumps(SMALL | {"name": "mvit_mini"}), "class_names": '["a"]'}
    save_file(load_file(file), file, metadata=text)
    with pytest.raises(ValueError, match=r"model\.safetensors has 1 class names for 3 classes"):
        load_model(file)


def test_a_model_of_elsewhere_is_refused(tmp_path):
    with pytest.raises(ValueError, match=r"must come from create_model .* got a Linear"):
        save_model(nn.Linear(2, 2), tmp_path)


def test_weights_alone_are_refused_with_what_to_do(tmp_path):
    torch.save(small_model().state_dict(), tmp_path / "a.pth")
    with pytest.raises(ValueError, match=r"a\.pth has weights .* load_model\(NAME, weights="):
        load_model(tmp_path / "a.pth")
