import json
import shutil
from dataclasses import replace

import pytest
import torch
from torch.utils.data import DataLoader, default_collate

from tests.comparison.tiny import tiny_comparison, tiny_recipe
from tokenselect.cli.main import main
from tokenselect.comparison import trials as trials_module
from tokenselect.comparison.compare import (
    ComparisonRow,
    find_noise,
    find_warnings,
    run_comparison,
    with_rivals,
    write_markdown,
)
from tokenselect.comparison.oracle import guide_clips, guide_model
from tokenselect.comparison.planning import Line, cross, parse_variants, plan_trials, read_lines
from tokenselect.comparison.trials import SKIPPED, measure_model
from tokenselect.data.synthetic import SyntheticActions
from tokenselect.measure.accuracy import count_answers
from tokenselect.measure.cost import Timing
from tokenselect.measure.recall import measure_recall
from tokenselect.models import create_model
from tokenselect.training.data import ClipSet

LINES = cross(["T0_0.5"], ["stts-exact", "random", "attention"])


def run(wanted, **more):
    return run_comparison(wanted, title="tiny", **{"workers": 0, "repeats": 1, **more})


@pytest.fixture(scope="module")
def compared(tmp_path_factory):
    """One small comparison, one of whose cells cannot be: its folder, what it found, the ends."""
    folder = tmp_path_factory.mktemp("compared")
    ends = {}
    wanted = tiny_comparison(folder, LINES)
    found = run(wanted, on_done=lambda trial, error: ends.update({trial.title: error}))
    return folder, found, ends


def test_a_comparison_trains_tests_and_writes_everything(compared):
    folder, found, _ = compared
    assert [row.method for row in found.rows] == ["start", "dense", *(m.method for m in LINES)]
    for row in found.rows[:-1]:
        assert len(row.top1) == 2 and len(row.answers[0]) == 16 and row.errors == []
        assert row.gmacs > 0 and row.milliseconds > 0
    selected = found.rows[2]
    assert selected.gmacs < found.rows[1].gmacs and set(selected.recall) == {"T0"}
    assert selected.against["random"].num_clips == 16
    assert {path.suffix for path in found.files} == {".json", ".md", ".png", ".html"}
    assert "T0_0.5" in (folder / "comparison.md").read_text()
    assert "data:image/png" in (folder / "comparison.html").read_text()
    assert len(json.loads((folder / "comparison.json").read_text())["rows"]) == 5


def test_a_method_that_cannot_be_at_a_site_is_not_applicable(compared):
    folder, found, ends = compared
    assert "T0_0.5.attention.s0" not in ends  # never run
    refused = found.rows[-1]
    assert refused.top1 == [] and refused.errors == [] and "before block 0" in refused.refusal
    text = (folder / "comparison.md").read_text()
    assert "| T0_0.5 | attention | N/A |" in text and "Not applicable:\n\n- T0_0.5 atten" in text
    assert "Not applicable: T0_0.5 attention" in (folder / "comparison.html").read_text()


def test_a_broken_cell_is_reported_and_stops_no_other(tmp_path, monkeypatch):
    train = trials_module.train

    def break_random(recipe, **more):
        if recipe.model.method == "random":
            raise RuntimeError("out of memory")
        return train(recipe, **more)

    monkeypatch.setattr(trials_module, "train", break_random)
    lines = cross(["T0_0.5"], ["random", "uniform"])
    found = run(tiny_comparison(tmp_path, lines, seeds=[0], tunes_dense=False), repeats=0)
    start, broken, whole = found.rows
    assert start.top1 and whole.top1 and broken.top1 == []
    assert broken.errors == ["seed 0: RuntimeError: out of memory"]
    text = (tmp_path / "comparison.md").read_text()
    assert "| T0_0.5 | random | failed |" in text and "Failed cells" in text


def test_what_is_finished_is_not_done_again_and_what_is_missing_is(compared, monkeypatch):
    folder, before, _ = compared
    (gone,) = folder.glob("cells/T0_0.5.random.s0*")
    gone.unlink()
    trained = []
    monkeypatch.setattr(trials_module, "train", lambda recipe, **_: trained.append(recipe.name))
    after = run(tiny_comparison(folder, LINES[:2]), repeats=0)
    assert len(trained) == 1 and trained[0].startswith("T0_0.5.random.s0")
    assert [r.answers for r in after.rows] == [r.answers for r in before.rows[:-1]]


@pytest.mark.slow
def test_a_process_of_its_own_gives_the_same_result(compared):
    folder = compared[0]
    (path,) = folder.glob("cells/T0_0.5.random.s0*")
    here = json.loads(path.read_text())["correct"]
    shutil.rmtree(folder / "runs" / path.name.partition("@")[0])
    path.unlink()
    run(tiny_comparison(folder, LINES[:2]), repeats=0, workers=1)
    assert json.loads(path.read_text())["correct"] == here


def test_the_command_tests_without_training(compared, tmp_path, capsys):
    (dense,) = (compared[0] / "runs").glob("start*")
    words = ["compare", str(dense / "recipe.yaml"), "--dense", str(dense), "--seeds", "1"]
    words += ["--out", str(tmp_path), "--train-free", "--workers", "0", "--repeats", "0"]
    main([*words, "--methods", "uniform,oracle"])
    assert "oracle" in capsys.readouterr().out
    with pytest.raises(SystemExit):
        main([*words, "--methods", "stts-exact"])
    assert "stts-exact have weights of their own" in capsys.readouterr().err


def test_cells_without_a_dense_model_are_not_run(tmp_path):
    wanted = tiny_comparison(tmp_path, [Line("T0_0.5", "random")], seeds=[0])
    wanted.dense.schedule.__dict__["batch_size"] = 100  # larger than the data set
    found = run(wanted, repeats=0)
    assert "starts from failed" in found.rows[-1].errors[0]


def test_one_training_serves_every_plan_that_it_is_tested_at(tmp_path):
    variants = {"own": {}, "any": {"model.plan": "any"}}
    lines = cross(["T0_0.5", "T0_0.25-S2_0.5"], ["stts-exact"], variants)
    trials, cells = plan_trials(tiny_comparison(tmp_path, lines, seeds=[0]))
    shared = {cells[line.title, 0].key for line in lines if line.variant == "any"}
    assert len(trials) == 5 and len(shared) == 1
    (trial,) = [trial for trial in trials if trial.key in shared]
    assert list(trial.recipe["model"]["budgets"]) == ["T0_0.25-S2_0.5", "T0_0.5"]
    assert set(trial.results) == {"T0_0.5", "T0_0.25-S2_0.5"}


def test_a_warning_says_where_learning_is_no_better_than_not():
    good = ComparisonRow(
        plan="T0_0.5", method="stts-exact", seeds=[0], top1=[1.0], answers=["1" * 20]
    )
    poor = ComparisonRow(plan="T0_0.5", method="gumbel", seeds=[0], top1=[0.5], answers=["01" * 10])
    random = ComparisonRow(
        plan="T0_0.5", method="random", seeds=[0], top1=[0.5], answers=["01" * 10]
    )
    rows = [good, poor, random]
    (text,) = find_warnings([with_rivals(row, rows) for row in rows])
    assert text.startswith("T0_0.5: gumbel is not significantly better than random (+0.0 points")


def test_a_time_within_the_noise_of_the_dense_model_is_named():
    quick, slow, wild = Timing([1, 1, 1]), Timing([9, 9, 9]), Timing([8, 10, 8])
    start = ComparisonRow(plan="dense", method="start", milliseconds=slow)
    sure = ComparisonRow(plan="T0_0.5", method="random", milliseconds=quick)
    lost = ComparisonRow(plan="T0_0.9", method="random", milliseconds=wild)
    assert find_noise([start, sure]) == []
    (text,) = find_noise([start, sure, lost])
    assert text.startswith("noisy: the ms of T0_0.9 random cannot be told apart")


def test_clips_without_a_label_are_skipped_as_evaluate_skips_them():
    torch.manual_seed(0)
    clips = [(torch.randn(3, 4, 32, 32), label) for label in (0, -1, 1, 2, -1, 0, 1)]
    model = create_model("mvit_mini", num_classes=3, frames=4, size=32).eval()
    data = replace(tiny_recipe().data, frames=4, size=32, workers=0)
    found = measure_model(model, ClipSet(clips, default_collate, "abc"), data)
    counter, _ = count_answers(model, DataLoader(clips, batch_size=2), num_classes=3)
    assert found["top1"] == pytest.approx(counter.result().top1)
    assert found["top5"] == pytest.approx(counter.result().top5)
    assert found["skipped"] == 2 and len(found["correct"]) == 7
    assert [found["correct"][place] for place in (1, 4)] == [SKIPPED, SKIPPED]
    with pytest.raises(ValueError, match="none of the 2 test clips has a label"):
        measure_model(model, ClipSet([clips[1], clips[4]], default_collate, "abc"), data)


def test_rivals_are_compared_on_the_clips_that_both_have_answers_for():
    ours = ComparisonRow(plan="T0_0.5", method="stts", seeds=[0], top1=[1], answers=["11-1-"])
    rival = ComparisonRow(plan="T0_0.5", method="random", seeds=[0], top1=[0], answers=["0-001"])
    paired = with_rivals(ours, [ours, rival]).against["random"]
    assert (paired.num_clips, paired.difference) == (2, 1.0)
    told = "Seeds 0; 3 test clips; 2 more were skipped: they have no label or cannot be read."
    assert told in write_markdown([ours], title="t", command="c", warnings=[])


def test_a_variant_changes_the_recipe_and_the_key(tmp_path):
    variants = parse_variants("base: quiet:schedule.sigma=0.01,model.scorer=anchor-features")
    lines = cross(["T0_0.5"], ["stts-exact"], variants)
    _, cells = plan_trials(tiny_comparison(tmp_path, lines))
    base, quiet = (cells[line.title, 1] for line in lines)
    assert quiet.recipe["schedule"]["sigma"] == 0.01 and base.recipe["schedule"]["sigma"] == 0.1
    assert quiet.recipe["model"]["scorer"] == "anchor-features" and base.key != quiet.key
    again = plan_trials(tiny_comparison(tmp_path / "moved", lines))[1][lines[0].title, 1]
    assert again.key == base.key


def test_the_scorer_counts_only_where_there_is_one(tmp_path):
    lines = cross(["T0_0.5"], ["stts-exact", "uniform"])
    _, before = plan_trials(tiny_comparison(tmp_path, lines))
    variants = {"other": {"model.scorer": "released"}}
    changed = cross(["T0_0.5"], ["stts-exact", "uniform"], variants)
    _, after = plan_trials(tiny_comparison(tmp_path, changed))
    learned, uniform = (
        before[a.title, 1].key == after[b.title, 1].key for a, b in zip(lines, changed, strict=True)
    )
    assert uniform and not learned


@pytest.mark.parametrize("text", ["sigma", "quiet:sigma", ":a=1"])
def test_a_variant_that_cannot_be_read_is_refused(text):
    with pytest.raises(ValueError, match="a variant is name:key=value"):
        parse_variants(text)


def test_unknown_keys_and_methods_are_refused(tmp_path):
    line = Line("T0_0.5", "random", "odd", {"schedule.sigmas": 1})
    with pytest.raises(ValueError, match=r"no key 'schedule\.sigmas'"):
        plan_trials(tiny_comparison(tmp_path, [line]))
    with pytest.raises(ValueError, match="got 'magic'"):
        Line("T0_0.5", "magic")


def test_blocks_of_a_file_are_products(tmp_path):
    path = tmp_path / "cells.yaml"
    path.write_text(
        "- {plans: [T0_0.5, S4_0.5], methods: [random, uniform]}\n"
        "- {plans: [T0_0.5], methods: [stts-exact], variants: {low: {schedule.sigma: 0.01}}}\n"
    )
    lines = read_lines(path)
    assert len(lines) == 5 and lines[-1].changes == {"schedule.sigma": 0.01}


def test_the_oracle_keeps_all_that_fits():
    torch.manual_seed(0)
    model = create_model("mvit_mini", num_classes=8, frames=16, size=64, plan="T0_0.5-S2_0.5")
    guide_model(model.eval())
    clips = SyntheticActions(12, frames=16, size=64, split="test")
    guided = guide_clips(ClipSet(clips, list, clips.class_names)).dataset
    assert torch.equal(guided[3][0][:3], clips[3][0])
    recall = measure_recall(model, guided)
    assert recall["T0"] == 1.0 and recall["S2"] > 0.9
