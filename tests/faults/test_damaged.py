"""Damaged videos and hostile settings: an answer or a sentence that names what is wrong."""

import pytest

from benchmarks.faults.isolation import run_isolated
from benchmarks.faults.settings import checkpoint_cases, list_cases, plan_cases, recipe_cases
from benchmarks.faults.videos import video_cases
from tests.faults.conftest import SEED


def test_damaged_videos_are_answered_or_refused_by_name_on_every_path(bench, holds):
    pytest.importorskip("fastapi", reason="one path is the web server")
    holds(run_isolated(list(video_cases(bench, range(40), seed=SEED))), at_least=180)


def test_damaged_checkpoints_are_refused_by_name(bench, holds):
    holds(run_isolated(list(checkpoint_cases(bench, range(48), seed=SEED))), at_least=48)


def test_hostile_recipes_train_or_are_refused_by_their_key(bench, holds):
    holds(run_isolated(list(recipe_cases(bench, range(24), seed=SEED))), at_least=24)


def test_damaged_lists_are_read_or_refused_by_name(bench, holds):
    holds(run_isolated(list(list_cases(bench, range(500), seed=SEED))), at_least=500)


def test_damaged_plans_are_read_as_themselves_or_refused(holds):
    holds(run_isolated(list(plan_cases(range(1000), seed=SEED))), at_least=1000)
