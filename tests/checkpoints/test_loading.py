import pytest
import torch
from safetensors.torch import save_file

from tokenselect import create_model
from tokenselect.checkpoints import model as loading
from tokenselect.checkpoints.model import DEFAULT_PLAN, open_model, save_model

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


def test_a_checkpoint_gives_its_model_and_how_to_use_it(checkpoint):
    folder, model = checkpoint
    loaded = open_model(checkpoint=folder)
    clip = torch.randn(loaded.rule.shape)
    assert torch.equal(loaded.model(clip), model(clip))
    assert loaded.class_names == ["a", "b", "c"] and loaded.notes == []
    assert loaded.rule.stride == 2 and loaded.rule.short_side == 40
    assert loaded.rule.stats[0] == (0.485, 0.456, 0.406)


def test_a_trained_selector_serves_another_ratio_at_its_site(checkpoint):
    folder, model = checkpoint
    loaded = open_model(checkpoint=folder, plan="T0_0.75")
    name = "token_selectors.T0.scoring.network"
    trained = {k: v for k, v in model.state_dict().items() if k.startswith(name)}
    own = loaded.model.state_dict()
    assert trained and all(torch.equal(own[key], value) for key, value in trained.items())


def test_a_site_without_a_trained_selector_is_refused(checkpoint):
    folder, _ = checkpoint
    with pytest.raises(ValueError, match=r"selects at T2, where .* \(they have S4, T0\); .*motion"):
        open_model(checkpoint=folder, plan="T2_0.5")
    assert str(open_model(checkpoint=folder, plan="T2_0.5", method="motion").plan) == "T2_0.5"


def test_another_plan_shares_the_weights_and_leaves_the_first_alone(checkpoint):
    loaded = open_model(checkpoint=checkpoint[0])
    clip = torch.randn(loaded.rule.shape)
    before = loaded.model(clip)
    dense = loaded.with_plan("dense")
    assert not hasattr(dense.model, "token_selectors")
    assert dense.model.classifier.weight is loaded.model.classifier.weight
    assert torch.equal(loaded.model(clip), before)
    again = dense.with_plan(loaded.plan)
    assert torch.equal(again.model(clip), before)


def test_a_saved_model_is_a_checkpoint_too(tmp_path):
    model = create_model("video_swin_mini", plan="T0_0.5", num_classes=2, **SMALL).eval()
    file = save_model(model, tmp_path / "swin.safetensors", class_names=["x", "y"])
    loaded = open_model(checkpoint=file)
    clip = torch.randn(loaded.rule.shape)
    assert torch.equal(loaded.model(clip), model(clip))
    assert loaded.class_names == ["x", "y"] and loaded.rule.stride == 2


def test_weights_fill_a_named_model_and_say_if_its_selectors_are_not_trained(tmp_path):
    model = create_model("mvit_mini", num_classes=5).eval()
    save_file(model.state_dict(), tmp_path / "w.safetensors")
    loaded = open_model("mvit_mini", weights=str(tmp_path / "w.safetensors"))
    clip = torch.randn(loaded.rule.shape)
    assert torch.equal(loaded.model(clip), model(clip))
    assert len(loaded.class_names) == 5 and loaded.remarks == []
    assert "not trained" in loaded.with_plan("T0_0.5").remarks[0]
    assert loaded.with_plan("T0_0.5", method="motion").remarks == []


def test_weights_need_the_name_of_their_model():
    with pytest.raises(ValueError, match="need the name of their model"):
        open_model(weights="kinetics400")


def test_random_weights_are_the_same_each_time_and_said_to_be_random():
    first, second = open_model("mvit_mini", plan="T0_0.5"), open_model("mvit_mini", plan="T0_0.5")
    assert all(
        torch.equal(a, b)
        for a, b in zip(first.model.parameters(), second.model.parameters(), strict=True)
    )
    assert "random weights" in first.notes[0]


def test_without_a_name_the_small_model_of_the_package_is_taken():
    loaded = open_model()
    assert loaded.name == "mvit_mini" and len(loaded.class_names) == 8
    assert loaded.rule.stride is None  # the whole of a synthetic clip is the action
    assert str(loaded.plan) == DEFAULT_PLAN or not loaded.notes


def test_a_checkpoint_in_the_package_is_the_default(tmp_path, monkeypatch):
    names = [f"action {n}" for n in range(8)]
    model = create_model("mvit_mini", plan="T1_0.5", num_classes=8, **SMALL)
    metadata = {"recipe": {"data": {"source": "synthetic", "stride": 4, **SMALL}}}
    file = save_model(model, tmp_path / "own.safetensors", class_names=names, metadata=metadata)
    monkeypatch.setattr(loading, "EMBEDDED", file)
    loaded = open_model()
    assert loaded.class_names == names and str(loaded.plan) == "T1_0.5" and not loaded.remarks
    assert loaded.rule.frames == 8 and loaded.rule.stride is None


def test_wrong_checkpoints_say_what_is_wrong(tmp_path):
    with pytest.raises(FileNotFoundError, match="no checkpoint at"):
        open_model(checkpoint=tmp_path)
    (tmp_path / "model.safetensors").write_bytes(b"not weights")
    with pytest.raises(ValueError, match="is neither a safetensors nor a torch file"):
        open_model(checkpoint=tmp_path)
    save_file({"a": torch.zeros(1)}, tmp_path / "model.safetensors")
    with pytest.raises(ValueError, match="holds weights but not what builds their model"):
        open_model(checkpoint=tmp_path)
    with pytest.raises(ValueError, match="give a model or a checkpoint"):
        open_model("mvit_mini", checkpoint=tmp_path)


def test_class_names_must_be_as_many_as_the_classes(tmp_path):
    names = tmp_path / "names.txt"
    names.write_text("one\ntwo\n")
    with pytest.raises(ValueError, match="has 2 class names, the model 400"):
        open_model("mvit_mini", class_names=names)
