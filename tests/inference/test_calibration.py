import json

import pytest
import torch

from tokenselect import create_model
from tokenselect.checkpoints import load_model, with_plan
from tokenselect.inference.calibrate import (
    PAPER,
    Candidate,
    CostModel,
    Results,
    calibrate_model,
    check_met,
    find_results,
    fit_accuracy,
    list_plans,
    rank,
    usual_sites,
)
from tokenselect.measure.cost import count_macs
from tokenselect.plan import SelectionPlan


def no_words(_):
    pass


@pytest.fixture(scope="module")
def model():
    return load_model("mvit_mini", size=32, method="motion")


@pytest.mark.slow
@pytest.mark.parametrize("name", ["mvit_mini", "video_swin_mini"])
def test_blocks_counted_one_by_one_add_up_to_the_model(name):
    model = create_model(name, num_classes=3, frames=8, size=(40, 56))
    costs = CostModel(model)
    plan = SelectionPlan.parse("T1_0.6-S2_0.5")
    selected = create_model(name, num_classes=3, frames=8, size=(40, 56), plan=plan)
    counted = count_macs(selected, 1, 3, 8, 40, 56)
    scorers = sum(
        macs
        for part, macs in counted.by_module.items()
        if part.startswith("token_selectors.") and part.count(".") == 1
    )
    assert costs.candidate(plan).gmacs == pytest.approx((counted.total - scorers) / 1e9)


def test_the_usual_sites_of_mvit_b16_are_those_of_the_paper():
    with torch.device("meta"):
        costs = CostModel(create_model("mvit_b16"))
    assert usual_sites(costs) == [("T", 0), ("T", 4), ("S", 4)]


def test_no_two_plans_keep_the_same(model):
    costs = CostModel(model)
    plans = list_plans(costs, [("T", 0), ("S", 2)])
    grids = [tuple(costs.grids(plan)) for plan in plans]
    assert len(set(grids)) == len(grids) and SelectionPlan() in plans
    assert "T0_0.7" not in map(str, plans)  # 6 of 8 frames, as T0_0.8


def test_a_plan_with_a_result_stands_for_all_that_keep_the_same(model):
    costs = CostModel(model)
    tested = SelectionPlan.parse("T0_0.7")
    plans = [str(plan) for plan in list_plans(costs, [("T", 0)], first=[tested])]
    assert "T0_0.7" in plans and "T0_0.8" not in plans


def test_what_is_kept_is_averaged_over_the_blocks(model):
    costs = CostModel(model)
    depth = len(model.blocks)
    half = costs.candidate(SelectionPlan.parse(f"T{depth - 2}_0.5"))  # the last two blocks
    assert half.time_kept == pytest.approx(1 - 1 / depth) and half.space_kept == 1.0


def candidates():
    return {
        "dense": Candidate(10, 1, 1),
        "T0_0.5": Candidate(5, 0.5, 1),
        "S0_0.5": Candidate(4, 1, 0.5),
        "T0_0.6": Candidate(6, 0.6, 1),
    }


def test_without_results_more_tokens_come_first():
    assert list(rank(candidates(), None))[:2] == ["dense", "T0_0.6"]


def test_recorded_results_come_before_estimates_of_less():
    results = Results("tests", {"dense": 80.0, "T0_0.5": 78.0, "S0_0.5": 70.0})
    ranked = rank(candidates(), results)
    assert list(ranked) == ["dense", "T0_0.6", "T0_0.5", "S0_0.5"]
    assert ranked["T0_0.6"].top1 == pytest.approx(78.4, abs=0.1)
    assert ranked["T0_0.5"].is_recorded and not ranked["T0_0.6"].is_recorded


def test_a_line_is_found_again():
    features = torch.tensor([[0.0, 0.0], [0.5, 0.0], [0.0, 0.5], [0.3, 0.2]])
    top1 = 80 - features @ torch.tensor([4.0, 10.0])
    assert fit_accuracy(features, top1).tolist() == pytest.approx([80, -4, -10], abs=0.1)


@pytest.mark.slow
def test_every_proposal_meets_the_target_in_gmacs(model):
    last = len(model.blocks) - 1
    target = count_macs(with_plan(model, f"T{last}_0.6"), *model.info.clip_rule.shape).gmacs
    found = calibrate_model(
        model, target_gmacs=target, sites=[("T", last)], count=3, repeats=1, tell=no_words
    )
    assert found.dense.gmacs > target and len(found.proposals) == 3
    assert found.proposals[0].plan == f"T{last}_0.6"
    assert all(p.gmacs <= target and p.milliseconds > 0 for p in found.proposals)
    kept = [p.kept for p in found.proposals]
    assert kept == sorted(kept, reverse=True)


@pytest.mark.slow
def test_a_target_in_milliseconds_is_measured(model):
    last = len(model.blocks) - 1
    found = calibrate_model(
        model, target_ms=1e6, sites=[("T", last)], count=2, repeats=1, tell=no_words
    )
    assert found.proposals[0].plan == "dense" and len(found.proposals) == 2


def test_a_target_that_nothing_meets_names_the_cheapest_plan():
    cheapest = rank(candidates(), None)["S0_0.5"]
    with pytest.raises(ValueError, match=r"no plan meets 3 GMACs: .* S0_0.5, takes 4 GMACs"):
        check_met(3, cheapest, cheapest.gmacs, unit="GMACs")


def test_targets_that_make_no_sense_are_refused(model):
    for targets in ({}, {"target_ms": 1.0, "target_gmacs": 1.0}):
        with pytest.raises(ValueError, match="give one target"):
            calibrate_model(model, tell=no_words, **targets)
    with pytest.raises(ValueError, match="above 0, got -1"):
        calibrate_model(model, target_ms=-1, tell=no_words)


def test_results_are_read_from_files_and_folders(tmp_path):
    record = {"model": "mvit_mini", "plan": "T0_0.50", "top1": 0.75}
    (tmp_path / "a.json").write_text(json.dumps(record))
    (tmp_path / "b.json").write_text(json.dumps([{**record, "plan": "dense", "top1": 0.8}, {}]))
    assert find_results("mvit_mini", [tmp_path]).top1 == {"T0_0.5": 75.0, "dense": 80.0}
    with pytest.raises(ValueError, match="no result of mvit_b16"):
        find_results("mvit_b16", [tmp_path])
    assert find_results("mvit_b16") is PAPER["mvit_b16"] and find_results("mvit_mini") is None


def test_every_plan_of_the_paper_is_written_as_we_write_it():
    for results in PAPER.values():
        assert all(str(SelectionPlan.parse(text)) == text for text in results.top1)
