import json
import signal
import subprocess
import sys
from dataclasses import replace
from pathlib import Path

import pytest
import torch

from tests.training.tiny import losses_of, tiny_trainer
from tokenselect.training.learner import Learner
from tokenselect.training.step import NonFiniteLossError
from tokenselect.weights import read_weights

REPOSITORY = Path(__file__).parents[2]


@pytest.fixture
def one_thread():
    """Sum in the same order as a process that has one thread."""
    threads = torch.get_num_threads()
    torch.set_num_threads(1)
    yield
    torch.set_num_threads(threads)


def assert_same_weights(ours: Path, theirs: Path) -> None:
    """Compare the last weights of two runs bit by bit."""
    first, second = read_weights(ours / "last")[0], read_weights(theirs / "last")[0]
    assert first.keys() == second.keys()
    assert all(torch.equal(first[name], second[name]) for name in first)


def run_until(folder: Path, steps: int, **more: object) -> None:
    """Run, but stop as if killed once a checkpoint after `steps` steps is written."""
    trainer = tiny_trainer(folder, **more)  # type: ignore[arg-type]
    save = trainer.save

    def save_and_stop(*, is_best: bool) -> None:
        save(is_best=is_best)
        if trainer.step >= steps:
            raise KeyboardInterrupt

    trainer.save = save_and_stop  # type: ignore[method-assign]
    with pytest.raises(KeyboardInterrupt):
        trainer.run()


def test_training_lowers_the_loss(tmp_path):
    tiny_trainer(tmp_path, epochs=6, dropout=0.0).run()
    losses = losses_of(tmp_path)
    assert len(losses) == 24
    assert sum(losses[-4:]) < 0.8 * sum(losses[:4])


def test_validation_may_wait_for_some_epochs_but_not_beyond_the_last(tmp_path):
    trainer = tiny_trainer(tmp_path, epochs=5)
    trainer.validate_every = 2
    assert trainer.run().keys() == {"top1", "top5"}
    lines = map(json.loads, (tmp_path / "metrics.jsonl").read_text().splitlines())
    assert [line["epoch"] for line in lines if line["kind"] == "val"] == [1, 3, 4]


def test_a_validation_after_no_epoch_is_refused(tmp_path):
    with pytest.raises(ValueError, match="validate_every must be 1 epoch or more, got 0"):
        replace(tiny_trainer(tmp_path), validate_every=0)


@pytest.mark.parametrize("ema", [None, 0.9])
def test_a_run_resumed_within_an_epoch_ends_as_if_never_stopped(tmp_path, ema):
    tiny_trainer(tmp_path / "whole", ema=ema).run()
    run_until(tmp_path / "cut", 6, ema=ema)
    again = tiny_trainer(tmp_path / "cut", ema=ema)
    assert again.resume() and again.step == 6
    again.run()
    assert_same_weights(tmp_path / "whole", tmp_path / "cut")
    assert losses_of(tmp_path / "whole") == losses_of(tmp_path / "cut")


@pytest.mark.slow
def test_a_run_killed_within_an_epoch_and_resumed_ends_with_equal_bits(tmp_path, one_thread):
    tiny_trainer(tmp_path / "whole", ema=0.9).run()
    done = subprocess.run(
        [sys.executable, "-m", "tests.training.tiny", str(tmp_path / "killed"), "die"],
        cwd=REPOSITORY,
        env={"PYTHONPATH": "src", "PATH": "/usr/bin:/bin"},
        check=False,
    )
    assert done.returncode == -signal.SIGKILL
    again = tiny_trainer(tmp_path / "killed", ema=0.9)
    assert again.resume() and again.step == 4
    again.run()
    assert_same_weights(tmp_path / "whole", tmp_path / "killed")
    assert losses_of(tmp_path / "whole") == losses_of(tmp_path / "killed")


def test_resuming_a_new_run_starts_it(tmp_path):
    trainer = tiny_trainer(tmp_path)
    assert not trainer.resume()
    assert trainer.step == 0


def test_the_average_of_the_weights_is_what_is_saved(tmp_path):
    trainer = tiny_trainer(tmp_path, ema=0.9)
    trainer.run()
    saved = read_weights(tmp_path / "last")[0]
    last = trainer.learner.model.state_dict()
    assert trainer.learner.average is not None
    for name, value in trainer.learner.average.weights.items():
        assert torch.equal(saved[name], value)
        assert not torch.equal(saved[name], last[name])


def test_a_loss_that_is_not_finite_says_where_and_what_to_try(tmp_path, monkeypatch):
    trainer = tiny_trainer(tmp_path)
    prepare = trainer.learner.prepare

    def spoil(clips, targets):
        return prepare(clips * (float("nan") if trainer.step == 3 else 1), targets)

    monkeypatch.setattr(trainer.learner, "prepare", spoil)
    with pytest.raises(NonFiniteLossError, match=r"step 3 \(epoch 0\), lr .*losses before") as stop:
        trainer.run()
    assert "--schedule.lr" in str(stop.value)
    assert read_weights(tmp_path / "last")[1]["step"] == 2


def test_metrics_tell_rate_speed_and_validation(tmp_path):
    tiny_trainer(tmp_path).run()
    lines = [json.loads(line) for line in (tmp_path / "metrics.jsonl").read_text().splitlines()]
    assert [line["step"] for line in lines if line["kind"] == "val"] == [4, 8]
    train = next(line for line in lines if line["kind"] == "train")
    assert {"loss", "accuracy", "lr", "clips_per_second", "gradient_norm"} <= train.keys()


def test_a_step_depends_on_its_number_not_on_what_ran_before(tmp_path):
    def dropped(learner: Learner) -> float:
        return learner.learn([(torch.ones(2, 3, 4, 16, 24), torch.tensor([0, 1]))], 5).loss

    first, second = (tiny_trainer(tmp_path).learner for _ in range(2))
    torch.rand(17)
    assert dropped(first) == dropped(second)
