import os

import pytest
import torch

from tokenselect.training import checkpoint
from tokenselect.training.checkpoint import load_state, save_checkpoint
from tokenselect.weights import read_weights
from tokenselect.weights.files import find_checkpoint


def save(run, step, **more):
    return save_checkpoint(
        run,
        step,
        weights={"weight": torch.full((2, 3), float(step))},
        state={"step": step},
        metadata={"plan": "T0_0.5", "step": step},
        **more,
    )


def test_what_is_saved_is_loaded(tmp_path):
    save(tmp_path, 7)
    weights, metadata = read_weights(tmp_path / "last")
    assert torch.equal(weights["weight"], torch.full((2, 3), 7.0))
    assert metadata == {"plan": "T0_0.5", "step": 7}
    assert load_state(tmp_path) == {"step": 7}


def test_only_last_and_best_are_kept(tmp_path):
    save(tmp_path, 1, is_best=True)
    save(tmp_path, 2)
    save(tmp_path, 3)
    assert sorted(path.name for path in tmp_path.glob("step-*")) == [
        "step-00000001",
        "step-00000003",
    ]
    assert os.readlink(tmp_path / "best") == "step-00000001"
    assert os.readlink(tmp_path / "last") == "step-00000003"


def test_the_best_checkpoint_is_found_first(tmp_path):
    save(tmp_path, 1, is_best=True)
    save(tmp_path, 2)
    assert find_checkpoint(tmp_path).resolve().parent.name == "step-00000001"
    assert find_checkpoint(tmp_path / "last").resolve().parent.name == "step-00000002"


def test_a_write_that_breaks_off_leaves_the_last_checkpoint_whole(tmp_path, monkeypatch):
    save(tmp_path, 1)
    with monkeypatch.context() as patch:
        patch.setattr(checkpoint.torch, "save", lambda *_: 1 / 0)
        with pytest.raises(ZeroDivisionError):
            save(tmp_path, 2)
    assert load_state(tmp_path) == {"step": 1}
    save(tmp_path, 3)
    assert not list(tmp_path.glob(".step-*"))


def test_a_run_without_a_checkpoint_has_no_state(tmp_path):
    assert load_state(tmp_path) is None
