import json
from pathlib import Path

import huggingface_hub
import pytest
import torch

from tests.checkpoints.test_saved import NAMES, logits_of, small_model
from tokenselect import push_to_hub, save_pretrained
from tokenselect.checkpoints import load_model, plan_of
from tokenselect.weights.public import is_repository

RESULTS = {"results": {"synthetic top-1": 0.75}}


def share(folder: Path) -> torch.nn.Module:
    model = small_model()
    save_pretrained(model, folder, class_names=NAMES, metadata=RESULTS, license="cc-by-4.0")
    return model


def test_a_shared_model_comes_back_from_its_folder(tmp_path):
    model = share(tmp_path / "model")
    loaded = load_model(tmp_path / "model")
    assert loaded.info.class_names == NAMES
    assert loaded.info.metadata == {**RESULTS, "license": "cc-by-4.0"}
    assert str(plan_of(loaded)) == "T0=2-S1=7x5"
    assert torch.equal(logits_of(loaded), logits_of(model))


def test_saving_what_was_loaded_changes_nothing(tmp_path):
    share(tmp_path / "a")
    save_pretrained(load_model(tmp_path / "a"), tmp_path / "b")
    for name in ("config.json", "README.md"):
        assert (tmp_path / "a" / name).read_bytes() == (tmp_path / "b" / name).read_bytes()
    assert load_model(tmp_path / "a").info.metadata == load_model(tmp_path / "b").info.metadata


def test_the_configuration_names_the_classes_as_the_hub_does(tmp_path):
    share(tmp_path)
    config = json.loads((tmp_path / "config.json").read_text())
    assert config["id2label"] == {"0": "run", "1": "jump", "2": "sit"}
    assert config["label2id"] == {"run": 0, "jump": 1, "sit": 2}
    assert config["model"]["plan"] == "T0=2-S1=7x5"


def test_the_card_tells_plan_costs_results_and_license(tmp_path):
    share(tmp_path)
    card = (tmp_path / "README.md").read_text()
    assert card.startswith("---\n")
    for part in (
        "license: cc-by-4.0",
        "| plan | T0=2-S1=7x5 |",
        "| input | 6 frames of 64 × 32 |",
        "| synthetic top-1 | 0.75 |",
    ):
        assert part in card
    costs = card.split("| GMACs per view | ")[1].split(")")[0]
    selected, dense = costs.split(" (dense: ")
    assert float(selected) < float(dense)


def test_a_card_claims_no_license_that_nobody_gave(tmp_path):
    save_pretrained(small_model(), tmp_path)
    assert "icense" not in (tmp_path / "README.md").read_text()


def test_a_push_uploads_weights_and_a_card_with_the_repositorys_name(hub):
    push_to_hub(small_model(), "someone/runner")
    files = {path.name for path in hub.iterdir()}
    assert files == {"model.safetensors", "config.json", "README.md"}
    assert 'load_model("someone/runner")' in (hub / "README.md").read_text()


def test_a_repository_is_loaded_by_its_name(tmp_path, monkeypatch):
    model = share(tmp_path)
    asked = []

    def download(repo_id, filename, *, revision):
        asked.append((repo_id, filename, revision))
        return str(tmp_path / filename)

    monkeypatch.setattr(huggingface_hub, "hf_hub_download", download)
    assert torch.equal(logits_of(load_model("someone/runner")), logits_of(model))
    assert set(asked) == {
        ("someone/runner", "config.json", None),
        ("someone/runner", "model.safetensors", None),
    }
    load_model("someone/runner@v1")
    assert ("someone/runner", "model.safetensors", "v1") in asked


def test_a_repository_that_cannot_be_had_is_named(monkeypatch):
    def download(*_, **__):
        raise OSError("no network")

    monkeypatch.setattr(huggingface_hub, "hf_hub_download", download)
    with pytest.raises(FileNotFoundError, match=r"someone/runner is neither .* Hub .* no network"):
        load_model("someone/runner")


def test_a_path_with_a_typing_mistake_is_not_looked_for_on_the_hub(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    (tmp_path / "runs").mkdir()
    assert not is_repository("runs/mien") and is_repository("someone/runner")
    assert not is_repository("/runs/mine") and not is_repository(Path("someone/runner"))
    with pytest.raises(FileNotFoundError, match="no checkpoint at runs/mien"):
        load_model("runs/mien")
