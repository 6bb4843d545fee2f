import os
import sys
import types

import pytest
import torch
from safetensors.torch import save_file

from tokenselect.weights.files import find_checkpoint, read_weights, unwrap

TENSORS = {"a.weight": torch.arange(6.0).reshape(2, 3), "a.bias": torch.ones(2)}


def assert_tensors(state):
    assert state.keys() == TENSORS.keys()
    assert all(torch.equal(state[name], TENSORS[name]) for name in TENSORS)


def test_a_files_kind_is_told_from_its_content_not_its_name(tmp_path):
    save_file(TENSORS, tmp_path / "weights.pth", metadata={"step": "3", "note": "hello"})
    torch.save(TENSORS, tmp_path / "weights.safetensors")
    state, metadata = read_weights(tmp_path / "weights.pth")
    assert_tensors(state)
    assert metadata == {"step": 3, "note": "hello"}
    state, metadata = read_weights(tmp_path / "weights.safetensors")
    assert_tensors(state)
    assert metadata == {}


@pytest.mark.parametrize(
    "content",
    [
        {"state_dict": TENSORS, "meta": {"epoch": 3}, "optimizer": {"state": {0: {}}}},
        {"epoch": 7, "model_state": {f"module.{n}": v for n, v in TENSORS.items()}},
        {"state_dict": {f"model._orig_mod.{n}": v for n, v in TENSORS.items()}},
        {"model": TENSORS, "ema": {"decay": torch.ones(())}},
        {"state_dict": {**TENSORS, "data_preprocessor.mean": torch.ones(3)}},
    ],
)
def test_wrappers_and_prefixes_are_taken_off(content):
    assert_tensors(unwrap(content))


def test_a_file_without_tensors_says_what_it_has():
    with pytest.raises(ValueError, match="only the keys epoch, meta"):
        unwrap({"epoch": 3, "meta": {}})


@pytest.fixture
def foreign_class():
    """A class of a framework that is gone when the file is read."""
    module = types.ModuleType("gone_framework")

    class History(dict):
        pass

    History.__module__, History.__qualname__ = "gone_framework", "History"
    module.History = History
    sys.modules["gone_framework"] = module
    yield History
    sys.modules.pop("gone_framework", None)


@pytest.mark.parametrize("is_zip", [True, False])
def test_tensors_beside_objects_of_a_missing_framework_are_read(tmp_path, foreign_class, is_zip):
    content = {"state_dict": TENSORS, "log": foreign_class(a=[1], b=foreign_class()), "x": len}
    torch.save(content, tmp_path / "a.pth", _use_new_zipfile_serialization=is_zip)
    del sys.modules["gone_framework"]
    assert_tensors(read_weights(tmp_path / "a.pth")[0])


def test_a_file_made_to_run_something_runs_nothing(tmp_path):
    class Harm:
        def __reduce__(self):
            return os.mkdir, (str(tmp_path / "harm"),)

    torch.save({"state_dict": TENSORS, "harm": Harm()}, tmp_path / "a.pth")
    assert_tensors(read_weights(tmp_path / "a.pth")[0])
    assert not (tmp_path / "harm").exists()


def test_a_file_that_is_neither_is_refused_by_name(tmp_path):
    (tmp_path / "a.pth").write_text("<html>not found</html>")
    with pytest.raises(
        ValueError, match=r"a\.pth is damaged, or neither a safetensors nor a torch file"
    ):
        read_weights(tmp_path / "a.pth")


def test_a_runs_folder_gives_its_best_checkpoint_then_its_last(tmp_path):
    for name in ("last", "best"):
        (tmp_path / name).mkdir()
        save_file(TENSORS, tmp_path / name / "model.safetensors")
        assert find_checkpoint(tmp_path).parent.name == name
    with pytest.raises(FileNotFoundError, match="no checkpoint at"):
        find_checkpoint(tmp_path / "nothing")
