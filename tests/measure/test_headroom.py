"""Headroom: what even frames, a fixed set and a choice for each clip reach."""

from itertools import combinations

import pytest
import torch

from tests.small_models import tiny_mvit
from tokenselect import insert_selectors, remove_selectors
from tokenselect.insertion import selectors_of
from tokenselect.measure.headroom import measure_headroom, sum_up


@pytest.fixture(name="dense")
def dense_model():
    torch.manual_seed(0)
    return remove_selectors(tiny_mvit("T0=2"))


def batches(sizes=(3, 2)):
    torch.manual_seed(1)
    return [(torch.randn(size, 3, 8, 24, 32), torch.randint(5, (size,))) for size in sizes]


def run_frames(model, clips, frames):
    grid = model.embed(clips)
    kept = grid.with_patches(grid.patches[:, list(frames)])
    for block in model.blocks:
        kept = block(kept)
    return model.head(kept)


@torch.no_grad()
def test_every_set_of_frames_is_answered_as_by_hand(dense):
    found = measure_headroom(dense, batches(), plan="T0=2", choices=10)
    clips, labels = (torch.cat(part) for part in zip(*batches(), strict=True))
    sets = list(combinations(range(4), 2))
    right = torch.stack([run_frames(dense, clips, s).argmax(dim=1) == labels for s in sets])
    assert found.num_choices == len(sets) and found.num_clips == 5
    assert found.random == pytest.approx(float(right.float().mean()))
    assert found.dense == pytest.approx(float((dense(clips).argmax(1) == labels).float().mean()))
    insert_selectors(dense, "T0=2", method="uniform")
    even = (dense(clips).argmax(dim=1) == labels).float().mean()
    assert found.uniform == pytest.approx(float(even))


def test_the_model_stays_dense(dense):
    measure_headroom(dense, batches((2,)), plan="S1_0.5")
    assert selectors_of(dense) is None


def test_sets_are_drawn_where_there_are_too_many(dense):
    drawn = [measure_headroom(dense, batches((2,)), plan="T0=2", choices=4) for _ in range(2)]
    assert drawn[0] == drawn[1] and drawn[0].num_choices == 4


def test_a_choice_for_each_clip_follows_the_dense_answer():
    answers = torch.tensor([[0, 1, 0], [0, 0, 1]] * 20, dtype=torch.bool)
    losses = torch.where(answers, 0.0, 1.0)
    dense = torch.ones(40, dtype=torch.bool)
    found = sum_up("T0=1", [(1,), (0,), (2,)], answers, losses, dense)
    assert (found.uniform, found.chosen, found.dense) == (0.0, 1.0, 1.0)
    assert found.fixed == 0.0  # the best of one half is wrong in the other
    assert "could gain up to 100.0 points" in found.advice


def test_where_nothing_is_to_be_won_uniform_is_advised():
    answers = torch.ones(30, 3, dtype=torch.bool)
    found = sum_up("S1_0.5", [(4,), (0,), (1,)], answers, torch.rand(30, 3), answers[:, 0])
    assert found.advice.startswith("Use `uniform`")


def test_a_fixed_set_that_wins_is_named():
    answers = torch.tensor([[0, 1, 1]] * 30, dtype=torch.bool)
    losses = torch.tensor([[2.0, 0.1, 0.5]] * 30)
    found = sum_up("T0=1", [(1,), (0,), (2,)], answers, losses, answers[:, 1])
    assert found.best == (0,) and "A fixed choice, (0,), already gains 100.0" in found.advice


def test_a_plan_of_several_sites_is_refused(dense):
    with pytest.raises(ValueError, match="plan must have one site"):
        measure_headroom(dense, batches(), plan="T0=2-S1_0.5")
