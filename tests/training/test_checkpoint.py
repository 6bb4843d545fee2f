import errno
import os
import shutil

import pytest
import torch
from safetensors import SafetensorError

from tokenselect.training import checkpoint
from tokenselect.training.checkpoint import find_newest, save_checkpoint
from tokenselect.weights import read_weights
from tokenselect.weights.files import find_checkpoint


def save(run, step, **more):
    return save_checkpoint(
        run,
        step,
        weights={"weight": torch.full((2, 3), float(step))},
        state={"step": step},
        metadata={"plan": "T0_0.5", "step": step, "a": "ä\n"},
        **more,
    )


def steps_in(run):
    return sorted(int(path.name.removeprefix("step-")) for path in run.glob("step-*"))


def test_what_is_saved_is_loaded(tmp_path):
    save(tmp_path, 7)
    weights, metadata = read_weights(tmp_path / "last")
    assert torch.equal(weights["weight"], torch.full((2, 3), 7.0))
    assert metadata == {"plan": "T0_0.5", "step": 7, "a": "ä\n"}
    assert find_newest(tmp_path).state == {"step": 7}


def test_equal_checkpoints_are_equal_files(tmp_path):
    for number in range(4):  # safetensors writes its metadata in an order of its own
        save(tmp_path / str(number), 1)
    for name in ("model.safetensors", "training.pt"):
        assert len({(run / "last" / name).read_bytes() for run in tmp_path.iterdir()}) == 1


def test_only_last_and_best_are_kept(tmp_path):
    save(tmp_path, 1, best_step=1)
    save(tmp_path, 2, best_step=1)
    save(tmp_path, 3, best_step=1)
    assert steps_in(tmp_path) == [1, 3]
    assert os.readlink(tmp_path / "best") == "step-00000001"
    assert os.readlink(tmp_path / "last") == "step-00000003"


def test_the_best_checkpoint_is_found_first(tmp_path):
    save(tmp_path, 1, best_step=1)
    save(tmp_path, 2, best_step=1)
    assert find_checkpoint(tmp_path).resolve().parent.name == "step-00000001"
    assert find_checkpoint(tmp_path / "last").resolve().parent.name == "step-00000002"


@pytest.mark.parametrize(
    ("function", "error"),
    [
        ("save_file", SafetensorError("I/O error: No space left on device (os error 28)")),
        ("torch.save", RuntimeError("PytorchStreamWriter failed writing file data/0")),
        ("flush", OSError(errno.ENOSPC, "No space left on device")),
    ],
)
def test_a_full_disk_leaves_what_was_there_and_says_what_to_do(
    tmp_path, monkeypatch, function, error
):
    def fail(*arguments, **options):
        raise error

    save(tmp_path, 1)
    with monkeypatch.context() as patch:
        patch.setattr(f"tokenselect.training.checkpoint.{function}", fail)
        with pytest.raises(OSError, match=r"checkpoint of step 2 could not .* --resume"):
            save(tmp_path, 2)
    assert find_newest(tmp_path).state == {"step": 1}
    assert not list(tmp_path.glob(".step-*"))


def test_a_checkpoint_that_was_killed_while_it_was_written_is_cleared_away(tmp_path, monkeypatch):
    def be_killed(*arguments):
        raise KeyboardInterrupt

    save(tmp_path, 1)
    with monkeypatch.context() as patch:
        patch.setattr(checkpoint.torch, "save", be_killed)
        with pytest.raises(KeyboardInterrupt):
            save(tmp_path, 2)
    assert find_newest(tmp_path).state == {"step": 1}
    save(tmp_path, 3)
    assert not list(tmp_path.glob(".step-*"))


def test_a_run_without_a_checkpoint_has_no_newest_one(tmp_path):
    assert find_newest(tmp_path) is None
    assert find_newest(tmp_path / "none") is None


def test_the_newest_whole_checkpoint_is_found_without_links(tmp_path):
    save(tmp_path, 1, best_step=1)
    save(tmp_path, 2, best_step=1)
    (tmp_path / "last").unlink()
    (tmp_path / "best").unlink()
    assert find_newest(tmp_path).state == {"step": 2}
    save(tmp_path, 3, best_step=1)
    assert steps_in(tmp_path) == [1, 3]


@pytest.mark.parametrize("name", ["training.pt", "model.safetensors"])
@pytest.mark.parametrize("share", [0.0, 0.3, 0.9, None])
def test_a_damaged_checkpoint_gives_way_to_the_one_before_and_stays(tmp_path, caplog, name, share):
    save(tmp_path, 1, best_step=1)
    save(tmp_path, 2, best_step=1)
    file = tmp_path / "step-00000002" / name
    content = file.read_bytes()
    file.unlink()
    if share is not None:
        file.write_bytes(content[: int(share * len(content))])
    assert find_newest(tmp_path).state == {"step": 1}
    assert "continues from step-00000001, because step-00000002" in caplog.text
    assert steps_in(tmp_path) == [1, 2]


def test_a_run_of_damaged_checkpoints_alone_is_refused_and_left_as_it_is(tmp_path):
    save(tmp_path, 1)
    (tmp_path / "step-00000001" / "training.pt").write_bytes(b"")
    before = shutil.copytree(tmp_path, tmp_path.with_name("copy"), symlinks=True)
    with pytest.raises(ValueError, match=r"no intact checkpoint .*--name"):
        find_newest(tmp_path)
    assert sorted(p.name for p in tmp_path.rglob("*")) == sorted(p.name for p in before.rglob("*"))
