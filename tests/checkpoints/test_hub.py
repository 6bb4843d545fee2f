from pathlib import Path

import huggingface_hub.hub_mixin
import pytest
import torch

from tests.checkpoints.test_saved import NAMES, logits_of, small_model
from tokenselect.checkpoints.hub import PretrainedModel
from tokenselect.checkpoints.model import load_model

RESULTS = {"results": {"synthetic top-1": 0.75}}


@pytest.fixture
def shared():
    return PretrainedModel(small_model(), class_names=NAMES, metadata=RESULTS, licence="cc-by-4.0")


def test_a_pretrained_model_comes_back_from_its_folder(shared, tmp_path):
    shared.save_pretrained(tmp_path / "model")
    loaded = PretrainedModel.from_pretrained(tmp_path / "model")
    assert loaded.class_names == tuple(NAMES)
    assert loaded.metadata == RESULTS
    assert (str(loaded.plan), loaded.licence) == ("T0=2-S1=7x5", "cc-by-4.0")
    assert torch.equal(logits_of(loaded.model), logits_of(shared.model))
    assert torch.equal(logits_of(load_model(tmp_path / "model").model), logits_of(shared.model))


def test_saving_what_was_loaded_changes_nothing(shared, tmp_path):
    shared.save_pretrained(tmp_path / "a")
    PretrainedModel.from_pretrained(tmp_path / "a").save_pretrained(tmp_path / "b")
    for name in ("config.json", "README.md"):
        assert (tmp_path / "a" / name).read_bytes() == (tmp_path / "b" / name).read_bytes()
    assert load_model(tmp_path / "a").metadata == load_model(tmp_path / "b").metadata


def test_the_card_tells_plan_costs_results_and_licence(shared, tmp_path):
    shared.save_pretrained(tmp_path)
    card = (tmp_path / "README.md").read_text()
    assert card.startswith("---\n")
    for part in (
        "license: cc-by-4.0",
        "| plan | T0=2-S1=7x5 |",
        "| input | 6 frames of 64 × 32 |",
        "| synthetic top-1 | 0.75 |",
    ):
        assert part in card
    costs = card.split("| GMACs a view | ")[1].split(")")[0]
    selected, dense = costs.split(" (dense: ")
    assert float(selected) < float(dense)


def test_a_push_uploads_weights_and_a_card_with_the_repositorys_name(shared, monkeypatch):
    uploaded: dict[str, str] = {}

    class Api:
        def __init__(self, **options):
            pass

        def create_repo(self, repo_id, **options):
            return type("Repo", (), {"repo_id": repo_id})()

        def upload_folder(self, *, repo_id, folder_path, **options):
            folder = Path(folder_path)
            uploaded.update({p.name: p.read_text(errors="ignore") for p in folder.iterdir()})
            return repo_id

    monkeypatch.setattr(huggingface_hub.hub_mixin, "HfApi", Api)
    shared.push_to_hub("someone/runner")
    assert uploaded.keys() == {"model.safetensors", "config.json", "README.md"}
    assert 'from_pretrained("someone/runner")' in uploaded["README.md"]
