import copy
import pickle

import pytest
import torch
from safetensors.torch import load_file, save_file
from torch import nn

from tokenselect import create_model
from tokenselect.checkpoints import (
    files,
    info_of,
    load_model,
    method_of,
    plan_of,
    remarks_of,
    save_model,
    with_plan,
)

SMALL = {"frames": 8, "size": 32}


@pytest.fixture(scope="module")
def checkpoint(tmp_path_factory):
    """A run's folder as training writes it."""
    torch.manual_seed(7)
    model = create_model("mvit_mini", plan="T0_0.5-S4_0.5", num_classes=3, **SMALL)
    data = {"source": "videos", "stride": 2, "short_side": 40, "stats": "imagenet", **SMALL}
    folder = tmp_path_factory.mktemp("run")
    metadata = {"recipe": {"data": data}}
    save_model(model, folder / "best", class_names=["a", "b", "c"], metadata=metadata)
    return folder, model.eval()


def clip_of(model: nn.Module) -> torch.Tensor:
    return torch.randn(info_of(model).clip_rule.shape, generator=torch.Generator().manual_seed(0))


def test_a_checkpoint_gives_its_model_and_how_to_use_it(checkpoint):
    folder, model = checkpoint
    loaded = load_model(folder)
    info = loaded.info
    assert torch.equal(loaded(clip_of(loaded)), model(clip_of(loaded)))
    assert info.id2label == {0: "a", 1: "b", 2: "c"} and info.label2id["c"] == 2
    assert info.notes == () and not loaded.training
    assert info.clip_rule.stride == 2 and info.clip_rule.short_side == 40
    assert info.clip_rule.stats[0] == (0.485, 0.456, 0.406)


def test_a_copy_and_a_pickle_keep_what_belongs_to_the_model(checkpoint):
    loaded = load_model(checkpoint[0])
    assert copy.deepcopy(loaded).info is loaded.info
    again = pickle.loads(pickle.dumps(loaded))
    assert again.info.id2label == loaded.info.id2label and plan_of(again) == plan_of(loaded)


def test_what_0_1_called_by_another_name_still_works_and_warns(checkpoint):
    loaded = load_model(checkpoint[0])
    with pytest.warns(DeprecationWarning, match="load_model returns the model itself"):
        assert loaded.model is loaded
    with pytest.warns(DeprecationWarning, match=r"model\.info\.id2label"):
        assert loaded.class_names == ("a", "b", "c")
    with pytest.warns(DeprecationWarning, match="plan_of"):
        assert str(loaded.plan) == "T0_0.5-S4_0.5"
    with pytest.warns(DeprecationWarning, match=r"model\.info\.metadata"):
        assert {"recipe", "model", "class_names"} <= loaded.metadata.keys()
    assert not hasattr(create_model("mvit_mini"), "model")


def test_a_trained_selector_serves_another_ratio_at_its_site(checkpoint):
    folder, model = checkpoint
    loaded = load_model(folder, plan="T0_0.75")
    name = "token_selectors.T0.scoring.network"
    trained = {k: v for k, v in model.state_dict().items() if k.startswith(name)}
    own = loaded.state_dict()
    assert trained and all(torch.equal(own[key], value) for key, value in trained.items())


def test_a_site_without_a_trained_selector_is_refused(checkpoint):
    folder, _ = checkpoint
    with pytest.raises(ValueError, match=r"selects at T2, where .* \(they have S4, T0\); .*motion"):
        load_model(folder, plan="T2_0.5")
    loaded = load_model(folder, plan="T2_0.5", method="motion")
    assert str(plan_of(loaded)) == "T2_0.5" and method_of(loaded) == "motion"


def test_another_plan_shares_the_weights_and_leaves_the_first_alone(checkpoint):
    loaded = load_model(checkpoint[0])
    clip = clip_of(loaded)
    before = loaded(clip)
    dense = with_plan(loaded, "dense")
    assert not hasattr(dense, "token_selectors")
    assert dense.classifier.weight is loaded.classifier.weight
    assert torch.equal(loaded(clip), before)
    again = with_plan(dense, plan_of(loaded))
    assert torch.equal(again(clip), before)


def test_another_plan_takes_selectors_that_were_trained_on_and_shares_them(checkpoint):
    loaded = load_model(checkpoint[0])
    name, own = next(loaded.token_selectors["T0"].named_parameters())
    with torch.no_grad():
        own.fill_(0.5)
    other = with_plan(loaded, "T0_0.25")
    assert other.token_selectors["T0"].get_parameter(name) is own


def test_a_model_that_was_never_saved_has_its_info_from_its_settings():
    model = create_model("video_swin_mini", plan="T0_0.5", num_classes=2, **SMALL)
    info = info_of(model)
    assert info.name == "video_swin_mini" and info.clip_rule.frames == 8
    assert info.id2label == {0: "class 0", 1: "class 1"}
    clip = clip_of(model)
    other = with_plan(model, "T0_0.25").eval()
    assert str(plan_of(other)) == "T0_0.25" and plan_of(model) != plan_of(other)
    assert torch.equal(with_plan(other, "T0_0.5")(clip), model.eval()(clip))


def test_a_saved_model_is_a_checkpoint_too(tmp_path):
    model = create_model("video_swin_mini", plan="T0_0.5", num_classes=2, **SMALL).eval()
    file = save_model(model, tmp_path / "swin.safetensors", class_names=["x", "y"])
    loaded = load_model(file)
    assert torch.equal(loaded(clip_of(loaded)), model(clip_of(loaded)))
    assert loaded.info.class_names == ["x", "y"] and loaded.info.clip_rule.stride == 2


def test_weights_fill_a_named_model_and_say_if_its_selectors_are_not_trained(tmp_path):
    model = create_model("mvit_mini", num_classes=5).eval()
    save_file(model.state_dict(), tmp_path / "w.safetensors")
    loaded = load_model("mvit_mini", weights=tmp_path / "w.safetensors")
    assert torch.equal(loaded(clip_of(loaded)), model(clip_of(loaded)))
    assert len(loaded.info.id2label) == 5 and remarks_of(loaded) == []
    assert "not trained" in remarks_of(with_plan(loaded, "T0_0.5"))[0]
    assert remarks_of(with_plan(loaded, "T0_0.5", method="motion")) == []


def test_weights_of_a_checkpoint_bring_their_class_names(checkpoint):
    loaded = load_model("mvit_mini", weights=checkpoint[0], size=32)
    assert loaded.info.class_names == ["a", "b", "c"]


def test_weights_need_the_name_of_their_model(checkpoint):
    with pytest.raises(ValueError, match="need the name of their model"):
        load_model(weights="kinetics400")
    with pytest.raises(ValueError, match="weights are for a model by name"):
        load_model(checkpoint[0], weights="kinetics400")


def test_random_weights_are_the_same_each_time_and_said_to_be_random():
    first, second = load_model("mvit_mini", plan="T0_0.5"), load_model("mvit_mini", plan="T0_0.5")
    assert all(
        torch.equal(a, b) for a, b in zip(first.parameters(), second.parameters(), strict=True)
    )
    assert "random weights" in first.info.notes[0]


def test_without_a_name_the_small_model_of_the_package_is_taken():
    info = load_model().info
    assert info.name == "mvit_mini" and len(info.id2label) == 8
    assert info.clip_rule.stride is None  # the whole of a synthetic clip is the action


def test_a_checkpoint_in_the_package_is_the_default(tmp_path, monkeypatch):
    names = [f"action {n}" for n in range(8)]
    model = create_model("mvit_mini", plan="T1_0.5", num_classes=8, **SMALL)
    metadata = {"recipe": {"data": {"source": "synthetic", "stride": 4, **SMALL}}}
    file = save_model(model, tmp_path / "own.safetensors", class_names=names, metadata=metadata)
    monkeypatch.setattr(files, "EMBEDDED", file)
    loaded = load_model()
    assert loaded.info.class_names == names and str(plan_of(loaded)) == "T1_0.5"
    assert not remarks_of(loaded)
    assert loaded.info.clip_rule.frames == 8 and loaded.info.clip_rule.stride is None


def test_a_folder_that_is_called_like_a_model_comes_before_the_name(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    model = create_model("mvit_mini", num_classes=2, **SMALL)
    save_model(model, tmp_path / "video_swin_t")
    assert load_model("video_swin_t").info.name == "mvit_mini"


@pytest.mark.parametrize("name", ["mvit_mini", "video_swin_mini"])
def test_a_checkpoint_takes_clips_of_another_size(name, tmp_path):
    model = create_model(name, plan="T0_0.5-S2_0.5", num_classes=3, **SMALL).eval()
    file = save_model(model, tmp_path / "a.safetensors")
    larger = load_model(file, size=(48, 64))
    assert larger.default_input == (8, 48, 64) and larger.info.clip_rule.size == (48, 64)
    clip = torch.randn(1, 3, 8, 48, 64)
    torch.testing.assert_close(larger(clip), model(clip))  # it interpolates in the forward pass


def test_a_score_for_each_position_refuses_another_size(tmp_path):
    model = create_model("mvit_mini", plan="S2_0.5", num_classes=3, method="static", **SMALL)
    file = save_model(model, tmp_path / "a.safetensors")
    with pytest.raises(ValueError, match="selector at S2 was trained for clips of another size"):
        load_model(file, size=48)


@pytest.mark.parametrize("name", ["norm.weight", "token_selectors.T0.scoring.network.local.bias"])
def test_weights_that_are_not_numbers_are_refused(name, tmp_path):
    model = create_model("mvit_mini", plan="T0_0.5", num_classes=3, scorer="paper", **SMALL)
    file = save_model(model, tmp_path / "a.safetensors")
    with torch.no_grad():
        model.get_parameter(name).view(-1)[0] = float("nan")
    save_model(model, file)
    with pytest.raises(ValueError, match=rf"a\.safetensors holds NaN .* in {name}"):
        load_model(file)
    save_file(load_file(file), tmp_path / "weights.safetensors")
    with pytest.raises(ValueError, match=rf"weights\.safetensors holds NaN .* in {name}"):
        load_model("mvit_mini", weights=tmp_path / "weights.safetensors", plan="T0_0.5")


def test_wrong_checkpoints_say_what_is_wrong(tmp_path):
    with pytest.raises(FileNotFoundError, match="no checkpoint at"):
        load_model(tmp_path)
    with pytest.raises(FileNotFoundError, match=r"at mvit_b17, .* there are mvit_b16, "):
        load_model("mvit_b17")
    (tmp_path / "model.safetensors").write_bytes(b"not weights")
    with pytest.raises(ValueError, match="is damaged, or neither a safetensors nor a torch file"):
        load_model(tmp_path)
    save_file({"a": torch.zeros(1)}, tmp_path / "model.safetensors")
    with pytest.raises(ValueError, match="does not say which model they are for"):
        load_model(tmp_path)


def test_class_names_come_from_a_list_or_a_file_and_are_as_many_as_the_classes(tmp_path):
    names = tmp_path / "names.txt"
    names.write_text("one\ntwo\n")
    with pytest.raises(ValueError, match="has 2 class names, the model 400"):
        load_model("mvit_mini", class_names=names)
    file = save_model(create_model("mvit_mini", num_classes=2, **SMALL), tmp_path)
    assert load_model(file, class_names=names).info.id2label == {0: "one", 1: "two"}
    assert load_model(file, class_names=["x", "y"]).info.label2id == {"x": 0, "y": 1}


def test_models_of_others_are_told_from_ours():
    with pytest.raises(ValueError, match=r"must come from create_model .* got a Linear"):
        info_of(nn.Linear(2, 2))
