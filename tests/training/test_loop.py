import itertools
import json
import os
import signal
import subprocess
import sys
from collections.abc import Callable
from contextlib import suppress
from pathlib import Path

import pytest
import torch

from tests.training.tiny import losses_of, tiny_trainer
from tokenselect.ops.topk_hard import NonFiniteScoresError
from tokenselect.training import checkpoint, report
from tokenselect.training.checkpoint import find_newest
from tokenselect.training.learner import Learner
from tokenselect.training.loop import Best, Trainer
from tokenselect.training.step import NonFiniteError
from tokenselect.weights import read_weights

REPOSITORY = Path(__file__).parents[2]


@pytest.fixture(autouse=True)
def no_board(monkeypatch):
    """Leave TensorBoard out, which takes longer than the training."""
    monkeypatch.setattr(report, "open_board", lambda folder: None)


@pytest.fixture
def one_thread():
    """Sum in the same order as a process that has one thread."""
    threads = torch.get_num_threads()
    torch.set_num_threads(1)
    yield
    torch.set_num_threads(threads)


def files_of(run: Path) -> dict[str, object]:
    """Read all checkpoints and links of a run."""
    links = {path.name: os.readlink(path) for path in run.iterdir() if path.is_symlink()}
    files = [*run.glob("step-*/*"), *run.glob(".step-*/*")]
    return links | {str(path.relative_to(run)): path.read_bytes() for path in files}


def resumed(folder: Path, **more: object) -> Trainer:
    trainer = scripted_trainer(folder, **more)
    found = find_newest(folder)
    if found is not None:
        trainer.restore(found)
    return trainer


TOP1 = {2: 0.75, 4: 0.25, 6: 0.8}  # after so many steps


def scripted_trainer(folder: Path, **more: object) -> Trainer:
    """Build a run of 3 epochs of 2 steps, the second of which is worse than the first."""
    trainer = tiny_trainer(folder, **{"epochs": 3, "num_clips": 12, **more})  # type: ignore[arg-type]
    trainer.learner.validate = lambda batches, num_classes: {"top1": TOP1[trainer.step]}
    return trainer


class Kill(BaseException):
    """Stands for the end of a process."""


def die_at_step(trainer: Trainer, step: int, monkeypatch: pytest.MonkeyPatch) -> None:
    learn = trainer.learner.learn

    def learn_or_die(parts: object, at: int) -> object:
        if at == step:
            raise Kill
        return learn(parts, at)

    monkeypatch.setattr(trainer.learner, "learn", learn_or_die)


def die_in_validation(trainer: Trainer, step: int, monkeypatch: pytest.MonkeyPatch) -> None:
    validate = trainer.learner.validate

    def validate_or_die(batches: object, num_classes: int) -> object:
        if trainer.step == step:
            raise Kill
        return validate(batches, num_classes)

    monkeypatch.setattr(trainer.learner, "validate", validate_or_die)


def die_while_saving(name: str) -> Callable[..., None]:
    """Make what dies at the n-th call of a function that saving a checkpoint uses."""

    def prepare(trainer: Trainer, number: int, monkeypatch: pytest.MonkeyPatch) -> None:
        function, calls = getattr(checkpoint.os, name), itertools.count(1)

        def call_or_die(*arguments: object) -> object:
            if next(calls) == number:
                raise Kill
            return function(*arguments)

        monkeypatch.setattr(checkpoint.os, name, call_or_die)

    return prepare


@pytest.mark.slow
@pytest.mark.parametrize("checkpoint_steps", [1, 2, None])
@pytest.mark.parametrize(
    ("die", "places"),
    [
        (die_at_step, range(6)),
        (die_in_validation, (2, 4, 6)),
        (die_while_saving("replace"), range(1, 14)),
        (die_while_saving("fsync"), range(1, 14, 3)),
    ],
    ids=["step", "validation", "replace", "fsync"],
)
def test_a_run_killed_anywhere_and_resumed_leaves_the_files_of_one_that_was_not(
    tmp_path, monkeypatch, die, places, checkpoint_steps
):
    scripted_trainer(tmp_path / "whole", checkpoint_steps=checkpoint_steps).run()
    expected = files_of(tmp_path / "whole")
    for place in places:
        run = tmp_path / str(place)
        killed = scripted_trainer(run, checkpoint_steps=checkpoint_steps)
        with monkeypatch.context() as patch:
            die(killed, place, patch)
            with suppress(Kill):
                killed.run()
        again = resumed(run, checkpoint_steps=checkpoint_steps)
        again.run()
        assert files_of(run) == expected, f"killed at {place}"
        assert losses_of(run) == losses_of(tmp_path / "whole")
        validated = [step for step, _ in validations_of(run)]
        assert validated == [2, 4, 6], f"killed at {place}"


def validations_of(run: Path) -> list[tuple[int, float]]:
    lines = map(json.loads, (run / "metrics.jsonl").read_text().splitlines())
    return [(line["step"], line["top1"]) for line in lines if line["kind"] == "val"]


def test_a_better_model_is_the_best_where_a_checkpoint_falls_on_an_epochs_last_step(tmp_path):
    scripted_trainer(tmp_path, checkpoint_steps=2, epochs=2).run()
    assert os.readlink(tmp_path / "best") == "step-00000002"
    assert read_weights(tmp_path / "best")[1]["best_top1"] == 0.75
    assert find_newest(tmp_path).state["best"] == {"top1": 0.75, "epoch": 0, "step": 2}


def test_a_resumed_run_without_links_goes_on_and_keeps_its_best(tmp_path):
    scripted_trainer(tmp_path / "whole").run()
    run = tmp_path / "cut"
    cut = scripted_trainer(run)
    with pytest.MonkeyPatch.context() as patch, suppress(Kill):
        die_at_step(cut, 5, patch)
        cut.run()
    (run / "last").unlink()
    (run / "best").unlink()
    again = resumed(run)
    assert again.step == 4 and again.best is not None and again.best.step == 2
    assert os.readlink(run / "best") == "step-00000002"
    again.run()
    assert files_of(run) == files_of(tmp_path / "whole")


def test_a_state_of_the_first_version_is_read_and_its_last_epoch_validated_again(tmp_path):
    cut = scripted_trainer(tmp_path)
    with pytest.MonkeyPatch.context() as patch, suppress(Kill):
        die_at_step(cut, 5, patch)
        cut.run()
    path = tmp_path / "step-00000004" / "training.pt"
    state = torch.load(path)
    torch.save({"learner": state["learner"], "step": 4, "best": 0.75}, path)
    again = resumed(tmp_path)
    assert (again.step, again.finished, again.best) == (4, 1, Best(0.75, 0, 2))
    again.run()
    assert [step for step, _ in validations_of(tmp_path)] == [2, 4, 6]


def test_other_data_than_those_of_the_checkpoint_are_refused(tmp_path):
    tiny_trainer(tmp_path, epochs=1).run()
    again = tiny_trainer(tmp_path)
    again.order.batch_size = 8
    with pytest.raises(
        ValueError, match=r"4 steps per epoch .* with 3 \(24 .*schedule\.batch_size 8"
    ):
        again.restore(find_newest(tmp_path))


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


def test_a_run_resumed_within_an_epoch_goes_on_with_its_averaged_weights(tmp_path, monkeypatch):
    scripted_trainer(tmp_path / "whole", ema=0.9).run()
    cut = scripted_trainer(tmp_path / "cut", ema=0.9, checkpoint_steps=5)
    die_at_step(cut, 5, monkeypatch)
    with suppress(Kill):
        cut.run()
    again = resumed(tmp_path / "cut", ema=0.9)
    assert again.step == 5
    again.run()
    assert files_of(tmp_path / "whole") == files_of(tmp_path / "cut")


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
    again.restore(find_newest(tmp_path / "killed"))
    assert again.step == 4
    again.run()
    assert files_of(tmp_path / "whole") == files_of(tmp_path / "killed")
    assert losses_of(tmp_path / "whole") == losses_of(tmp_path / "killed")


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
    with pytest.raises(NonFiniteError, match=r"step 3 \(epoch 0\), lr .*losses before") as stop:
        trainer.run()
    assert "--schedule.lr" in str(stop.value)
    assert read_weights(tmp_path / "last")[1]["step"] == 2


@pytest.mark.parametrize("step", [2, 3])
def test_weights_that_are_not_finite_are_never_saved(tmp_path, monkeypatch, step):
    trainer = tiny_trainer(tmp_path, checkpoint_steps=1)
    learn = trainer.learner.learn

    def learn_and_spoil(parts, at):
        report = learn(parts, at)
        if at == step:
            with torch.no_grad():
                next(iter(trainer.learner.model.parameters())).view(-1)[0] = float("inf")
        return report

    monkeypatch.setattr(trainer.learner, "learn", learn_and_spoil)
    with pytest.raises(NonFiniteError, match=r"patch.weight holds .* not finite at step .* Try"):
        trainer.run()
    assert read_weights(tmp_path / "last")[1]["step"] == step


def test_scores_that_are_nan_in_a_validation_say_where_and_what_to_try(tmp_path, monkeypatch):
    def fail(batches, num_classes):
        raise NonFiniteScoresError("scores must not be NaN, got 8 NaN values")

    trainer = tiny_trainer(tmp_path)
    monkeypatch.setattr(trainer.learner, "validate", fail)
    with pytest.raises(NonFiniteError, match=r"8 NaN values at step 4 .* --schedule\.lr"):
        trainer.run()


@pytest.mark.parametrize("number", [signal.SIGINT, signal.SIGTERM])
def test_an_interrupted_run_ends_with_a_checkpoint_and_can_go_on(tmp_path, monkeypatch, number):
    scripted_trainer(tmp_path / "whole").run()
    trainer = scripted_trainer(tmp_path / "cut", checkpoint_steps=None)
    learn = trainer.learner.learn

    def learn_and_interrupt(parts, at):
        if at == 2:
            os.kill(os.getpid(), number)
        return learn(parts, at)

    monkeypatch.setattr(trainer.learner, "learn", learn_and_interrupt)
    with pytest.raises(KeyboardInterrupt):
        trainer.run()
    again = resumed(tmp_path / "cut")
    assert again.step == 3
    again.run()
    assert files_of(tmp_path / "cut") == files_of(tmp_path / "whole")


def test_a_second_interrupt_stops_at_once(tmp_path, monkeypatch):
    trainer = tiny_trainer(tmp_path)
    before = signal.getsignal(signal.SIGINT)

    def interrupt_twice(parts, at):
        os.kill(os.getpid(), signal.SIGINT)
        os.kill(os.getpid(), signal.SIGINT)
        pytest.fail("it went on")

    monkeypatch.setattr(trainer.learner, "learn", interrupt_twice)
    with pytest.raises(KeyboardInterrupt):
        trainer.run()
    assert find_newest(tmp_path) is None and signal.getsignal(signal.SIGINT) is before


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


def test_a_run_without_better_validations_stops_early_and_stays_stopped(tmp_path):
    trainer = scripted_trainer(tmp_path)
    trainer.patience, trainer.testing = 1, "tokenselect evaluate here"
    trainer.run()
    assert (trainer.finished, trainer.best) == (2, Best(0.75, 0, 2))
    log = (tmp_path / "train.log").read_text()
    assert "stopped early: no better validation in 1 epochs" in log
    assert f"best 75.0% at epoch 1, in {tmp_path / 'best'}; evaluate it with: tokenselect" in log
    again = resumed(tmp_path)
    again.patience = 1
    assert again.run() == {} and again.step == 4


def test_the_log_tells_how_long_the_rest_takes(tmp_path, monkeypatch):
    clock = itertools.count(0.0, 10.0)
    monkeypatch.setattr(report.time, "perf_counter", lambda: next(clock))
    told = report.RunReport(folder=tmp_path, total_steps=20, steps_per_epoch=5)
    told.validation_seconds = 4.0
    for step in (1, 2, 3):
        told.train(step=step, epoch=0, num_clips=8, loss=1.0, accuracy=0.5, lr=0.1)
    assert told.seconds_left(3) == 17 * 10 + 4 * 4
    assert (
        "an epoch takes about 54 s, the rest of the run 3 min"
        in (tmp_path / "train.log").read_text()
    )
    assert [report.write_duration(s) for s in (7.4, 400, 12000)] == ["7 s", "7 min", "3 h 20 min"]
