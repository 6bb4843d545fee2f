"""Hostile requests: none ends in an error of the server."""

import pytest

pytest.importorskip("fastapi", reason="the web tests need fastapi (pip install fastapi)")

from benchmarks.faults.isolation import run_isolated
from benchmarks.faults.requests import request_cases
from tests.faults.conftest import SEED


def test_hostile_requests_get_an_answer(bench, holds):
    holds(run_isolated(list(request_cases(bench, range(60), seed=SEED))), at_least=60)
