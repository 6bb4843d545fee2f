import csv
import json
import shutil
from pathlib import Path

import pytest
import torch
import yaml

from tests.training.tiny import TinyBackbone, losses_of
from tokenselect import models
from tokenselect.checkpoints import load_model, plan_of
from tokenselect.cli.evaluate import evaluate
from tokenselect.cli.options import ClipOptions
from tokenselect.cli.train import run, train
from tokenselect.data import write_video
from tokenselect.training import build, probation, teach
from tokenselect.training.build import build_learner, recipe_of
from tokenselect.training.checkpoint import find_newest
from tokenselect.training.distributed import Processes
from tokenselect.training.loop import Trainer
from tokenselect.training.recipe import Recipe, read_recipe, recipe_from_dict
from tokenselect.training.step import NonFiniteError

ONE = ClipOptions(workers=0, device="cpu")
DEFAULTS = teach.teach_selectors.__kwdefaults__

SMALL = {
    "data": {"frames": 4, "size": 32, "train_clips": 8, "val_clips": 8, "workers": 0},
    "augmentation": {"mixup": 0, "cutmix": 0, "label_smoothing": 0.0},
    "schedule": {"epochs": 1, "warmup_epochs": 0.5, "batch_size": 4, "backbone_factor": 1.0},
    "device": "cpu",
}


def small_recipe(folder: Path, **more: object) -> Recipe:
    return recipe_from_dict({"name": "small", "runs": str(folder), **SMALL, **more})


@pytest.fixture
def recipe_file(tmp_path) -> Path:
    path = tmp_path / "small.yaml"
    path.write_text(yaml.safe_dump({"name": "small", "runs": str(tmp_path / "runs"), **SMALL}))
    return path


@pytest.mark.slow
def test_the_command_trains_selects_and_evaluates(recipe_file, tmp_path, capsys):
    run([str(recipe_file), "--model.plan", "T0_0.5-S2_0.5"])
    folder = tmp_path / "runs" / "small"
    assert len(losses_of(folder)) == 2
    evaluate(str(folder), "val", options=ONE, output=str(tmp_path / "out.json"))
    results = json.loads((tmp_path / "out.json").read_text())
    assert results["num_videos"] == 8 and set(results["recall"]) == {"T0", "S2"}
    assert results["gmacs_per_view"] > 0 and len(results["per_class"]) == 8
    assert "top1" in capsys.readouterr().out


def test_a_run_that_exists_is_not_begun_again_unless_resumed(tmp_path):
    recipe = small_recipe(tmp_path)
    train(recipe)
    with pytest.raises(FileExistsError, match="--resume"):
        train(recipe)
    assert train(recipe, resume=True) == {}


def test_another_plan_on_resume_is_refused_by_its_key(tmp_path):
    train(small_recipe(tmp_path, model={"plan": "T0_0.5"}))
    before = sorted(path.name for path in (tmp_path / "small").iterdir())
    with pytest.raises(
        ValueError, match=r"began with model\.plan T0_0\.5, .* says T0_0\.75.*--name"
    ):
        train(small_recipe(tmp_path, model={"plan": "T0_0.75"}), resume=True)
    with pytest.raises(ValueError, match=r"began with schedule\.batch_size 4"):
        train(
            small_recipe(
                tmp_path, model={"plan": "T0_0.5"}, schedule=SMALL["schedule"] | {"batch_size": 2}
            ),
            resume=True,
        )
    assert sorted(path.name for path in (tmp_path / "small").iterdir()) == before


def test_a_dense_run_is_resumed_whatever_its_recipe_says_of_selectors(tmp_path):
    train(small_recipe(tmp_path, model={"scorer": "paper"}))
    assert train(small_recipe(tmp_path, model={"scorer": "taught"}), resume=True) == {}


def test_a_changed_schedule_is_told_on_resume_and_a_changed_place_is_not(tmp_path, caplog):
    train(small_recipe(tmp_path))
    longer = SMALL["schedule"] | {"epochs": 2}
    train(small_recipe(tmp_path, schedule=longer, checkpoint_minutes=3), resume=True)
    assert (
        "changed since the run began, and used from here on: schedule.epochs 1 → 2" in caplog.text
    )
    assert "minutes" not in caplog.text
    assert len(losses_of(tmp_path / "small")) == 4
    log = (tmp_path / "small" / "train.log").read_text()
    assert "8 classes, 8 clips to train on, 8 to validate" in log and "cpu, " in log
    assert "continues from step-00000002: epoch 2 of 2, step 2 of 4" in log
    assert "the learning rate of the next step is 7.5e-05 (it would have been 1e-06)" in log


@pytest.mark.parametrize(
    ("changes", "message"),
    [
        ({"model": {"name": "mvit_min"}}, r"model\.name.*: no model is called 'mvit_min'"),
        ({"model": {"plan": "T0_2"}}, r"model\.plan.*: .*got 2"),
        ({"model": {"weights": "gone"}}, r"model\.weights: weights 'gone'"),
        ({"data": SMALL["data"] | {"source": "videos", "root": "gone"}}, r"data\.train: .*gone"),
    ],
)
def test_a_wrong_value_is_blamed_on_its_key(tmp_path, changes, message):
    with pytest.raises((ValueError, OSError), match=message):
        train(small_recipe(tmp_path, **changes))


def test_other_classes_on_resume_are_refused_by_name(tmp_path):
    write_class_folders(tmp_path)
    data = SMALL["data"] | {"source": "videos", "root": str(tmp_path), "stride": 1}
    data |= {"train": {"annotations": "train"}, "val": {"annotations": "val"}}
    train(small_recipe(tmp_path / "runs", data=data))
    for part in ("train", "val"):
        (tmp_path / part / "light").rename(tmp_path / part / "bright")
    with pytest.raises(ValueError, match="knows a class 'dark' where the data have 'bright'"):
        train(small_recipe(tmp_path / "runs", data=data), resume=True)


@pytest.mark.parametrize("plan", ["dense", "T0_0.5", "S2_0.5"])
def test_training_that_diverges_says_step_lr_and_what_to_try(tmp_path, plan):
    wild = SMALL["schedule"] | {"lr": 1e30, "warmup_epochs": 0, "epochs": 2}
    with pytest.raises(
        NonFiniteError, match=r"at step 1 \(epoch 0\), lr 8\.54e\+29.* --schedule\.lr"
    ):
        train(small_recipe(tmp_path, model={"plan": plan}, schedule=wild))
    assert not (tmp_path / "small" / "last").exists()


def test_an_interrupted_run_says_how_to_go_on(tmp_path, monkeypatch, caplog):
    def interrupt(trainer):
        raise KeyboardInterrupt

    recipe = small_recipe(tmp_path)
    monkeypatch.setattr(Trainer, "run", interrupt)
    with pytest.raises(KeyboardInterrupt):
        train(recipe)
    kept = recipe.folder / "recipe.yaml"
    assert f"at step 0 of 2; continue with: tokenselect train {kept} --resume" in caplog.text
    assert read_recipe(kept) == recipe


@pytest.mark.parametrize("device", ["gpu", "cuda:99", "meta", "privateuseone"])
def test_a_device_that_is_not_there_is_refused(tmp_path, device):
    with pytest.raises(ValueError, match=f"device must be one of this machine, got '{device}'"):
        train(small_recipe(tmp_path, device=device))


def test_a_dense_checkpoint_starts_a_model_with_selectors(tmp_path):
    train(small_recipe(tmp_path, name="dense"))
    start = {"plan": "T0_0.5", "weights": str(tmp_path / "dense")}
    train(small_recipe(tmp_path, name="selected", model=start))
    loaded = load_model(tmp_path / "selected")
    assert str(plan_of(loaded)) == "T0_0.5"
    assert recipe_of(loaded).name == "selected"


def test_a_dense_model_of_the_task_teaches_the_selectors_once(tmp_path, monkeypatch, caplog):
    taught = []

    def watch(model, *clips, **settings):
        lessons = teach.teach_selectors(model, *clips, **settings)
        if not settings["again"]:
            taught.append(model.token_selectors["T0"].scoring.network.score.weight.clone())
        return lessons

    monkeypatch.setattr(probation, "teach_selectors", watch)
    monkeypatch.setattr(teach.teach_selectors, "__kwdefaults__", {**DEFAULTS, "steps": 2})
    train(small_recipe(tmp_path, name="dense"))
    start = {"plan": "T0_0.5", "scorer": "taught", "weights": str(tmp_path / "dense")}
    recipe = small_recipe(tmp_path, name="selected", model=start)
    train(recipe)
    train(recipe, resume=True)
    again = {**start, "weights": str(tmp_path / "selected")}  # its selectors are trained already
    train(small_recipe(tmp_path, name="again", model=again))
    assert len(taught) == 1 and taught[0].abs().sum() > 0
    resumed = build.build_trainer(recipe, Processes(), is_new=False)
    resumed.restore(find_newest(recipe.folder))
    assert {group["factor"] for group in resumed.learner.optimizer.param_groups} == {
        recipe.schedule.taught_factor,
        recipe.schedule.backbone_factor,
    }


def test_a_run_that_nothing_can_teach_says_so(tmp_path, caplog):
    train(small_recipe(tmp_path, model={"plan": "T0_0.5", "scorer": "taught"}))
    assert "the selectors start untaught" in caplog.text


def test_a_base_is_trained_first_if_asked_and_only_once(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    base = {"name": "dense", "model": {"plan": "dense"}, **SMALL}
    Path("dense.yaml").write_text(yaml.safe_dump(base))
    over = {"base": "dense.yaml", "name": "kept"}
    over["model"] = {"plan": "T0_0.5", "weights": "runs/dense/last"}
    Path("kept.yaml").write_text(yaml.safe_dump(over))
    run(["kept.yaml", "--with-base", "--threads", "1", "--seed", "3"])
    dense = recipe_of(load_model("runs/dense"))
    assert (dense.threads, dense.seed) == (1, 0)
    assert str(plan_of(load_model("runs/kept"))) == "T0_0.5"
    begun = Path("runs/dense/metrics.jsonl").read_text()
    run(["kept.yaml", "--with-base", "--name", "again"])
    assert Path("runs/dense/metrics.jsonl").read_text() == begun
    with pytest.raises(ValueError, match="starts from elsewhere, its base is runs/dense"):
        run(["kept.yaml", "--with-base", "--model.weights", "elsewhere"])
    with pytest.raises(ValueError, match=r"dense\.yaml must have a base"):
        run(["dense.yaml", "--with-base"])


def test_another_plan_at_the_trained_sites_takes_the_trained_selectors(tmp_path):
    train(small_recipe(tmp_path, model={"plan": "T0_0.5"}))
    same = load_model(tmp_path / "small", plan="T0=1").state_dict()
    trained = load_model(tmp_path / "small").state_dict()
    assert all(torch.equal(same[name], trained[name]) for name in trained)
    assert not hasattr(load_model(tmp_path / "small", plan="dense"), "token_selectors")
    with pytest.raises(ValueError, match="selects at T2"):
        load_model(tmp_path / "small", plan="T2_0.5")


def write_class_folders(root: Path) -> None:
    for part in ("train", "val"):
        for number, name in enumerate(("dark", "light")):
            for copy in range(2):
                frames = torch.full((6, 3, 32, 40), 60 + 120 * number, dtype=torch.uint8)
                path = root / part / name / f"{copy}.mp4"
                path.parent.mkdir(parents=True, exist_ok=True)
                write_video(path, frames, fps=10)


def test_a_folder_of_videos_is_trained_on_and_broken_ones_are_counted(tmp_path):
    write_class_folders(tmp_path)
    (tmp_path / "train" / "dark" / "0.mp4").write_bytes(b"no video")
    data = SMALL["data"] | {
        "source": "videos",
        "root": str(tmp_path),
        "train": {"annotations": "train"},
        "val": {"annotations": "val"},
        "stride": 1,
    }
    recipe = small_recipe(tmp_path / "runs", data=data)
    train(recipe)
    lines = (recipe.folder / "metrics.jsonl").read_text().splitlines()
    assert json.loads(lines[-1])["replaced_videos"] == 1


def test_videos_without_a_root_say_what_to_give(tmp_path):
    with pytest.raises(ValueError, match=r"--data\.root"):
        train(small_recipe(tmp_path, data=SMALL["data"] | {"source": "videos"}))


def test_checkpointed_activations_change_neither_loss_nor_gradient():
    torch.manual_seed(0)
    plain, saving = TinyBackbone(), TinyBackbone()
    saving.load_state_dict(plain.state_dict())
    recipe = recipe_from_dict({"name": "x", "model": {"activation_checkpointing": True}})
    build_learner(recipe, Processes(), saving, num_classes=4, steps_per_epoch=1)
    video = torch.randn(2, 3, 4, 16, 24)
    for model in (plain, saving):
        model(video).square().sum().backward()
    for ours, theirs in zip(saving.parameters(), plain.parameters(), strict=True):
        torch.testing.assert_close(ours.grad, theirs.grad)


def test_every_model_has_its_blocks_where_training_looks_for_them():
    for name in models.list_models():
        with torch.device("meta"):
            assert len(models.create_model(name).blocks) > 0


def test_any_folder_can_be_evaluated_with_the_trained_cut(tmp_path):
    write_class_folders(tmp_path)
    data = SMALL["data"] | {"source": "videos", "root": str(tmp_path), "stride": 1}
    parts = {"train": {"annotations": "train"}, "val": {"annotations": "val"}}
    train(small_recipe(tmp_path / "runs", data=data | parts))
    out = tmp_path / "out.json"
    run = tmp_path / "runs" / "small"
    folder = str(tmp_path / "val")
    answers, picture = tmp_path / "answers.csv", tmp_path / "confusion.png"
    evaluate(
        str(run),
        folder,
        options=ONE,
        views="2x1",
        output=str(out),
        predictions=str(answers),
        confusion=str(picture),
    )
    results = json.loads(out.read_text())
    assert results["num_videos"] == 4 and set(results["per_class"]) == {"dark", "light"}
    assert results["gmacs_per_video"] == pytest.approx(2 * results["gmacs_per_view"])
    rows = list(csv.DictReader(answers.open()))
    assert [Path(row["video"]).parent.name for row in rows] == [row["label"] for row in rows]
    assert sum(int(row["right"]) for row in rows) == round(4 * results["top1"])
    assert picture.stat().st_size > 500


def test_a_broken_video_gets_no_answer_and_an_unlabelled_one_does(tmp_path):
    write_class_folders(tmp_path)
    data = SMALL["data"] | {"source": "videos", "root": str(tmp_path), "stride": 1}
    train(small_recipe(tmp_path / "runs", data=data))
    (tmp_path / "broken.mp4").write_bytes(b"no video")
    shutil.copy(next((tmp_path / "val" / "dark").iterdir()), tmp_path / "whole.mp4")
    listed = tmp_path / "list.csv"
    listed.write_text("path,label\nwhole.mp4,dark\nbroken.mp4,dark\nwhole.mp4,\n")
    answers = str(tmp_path / "answers.csv")
    evaluate(str(tmp_path / "runs" / "small"), str(listed), options=ONE, predictions=answers)
    rows = list(csv.DictReader(Path(answers).read_text().splitlines()))
    assert [bool(row["answer"]) for row in rows] == [True, False, True]
    assert [bool(row["right"]) for row in rows] == [True, False, False]


def test_a_run_with_videos_to_test_on_ends_with_their_test(tmp_path):
    write_class_folders(tmp_path)
    data = SMALL["data"] | {"source": "videos", "root": str(tmp_path), "stride": 1}
    data |= {"balance": True, "test": {"annotations": "val"}}
    recipe = small_recipe(tmp_path / "runs", data=data)
    (tmp_path / "small.yaml").write_text(yaml.safe_dump(recipe.to_dict()))
    run([str(tmp_path / "small.yaml")])
    folder = tmp_path / "runs" / "small"
    assert json.loads((folder / "test.json").read_text())["num_videos"] == 4
    assert {"test.csv", "confusion.png"} <= {path.name for path in folder.iterdir()}


def test_other_classes_than_the_trained_ones_are_refused(tmp_path):
    write_class_folders(tmp_path)
    train(small_recipe(tmp_path / "runs"))
    with pytest.raises(
        ValueError, match=r"class 'dark' and 1 more, not among the 8 class names: right-down"
    ):
        evaluate(str(tmp_path / "runs" / "small"), str(tmp_path / "val"), options=ONE)
