"""A few cases of `benchmarks.faults`, always the same; the long run there tries thousands."""

import pytest

from benchmarks.faults.isolation import Tally
from benchmarks.faults.videos import Bench

SEED = 20260  # printed with a failure: `python -m benchmarks.faults --seed` makes the case again


@pytest.fixture(scope="session")
def bench(tmp_path_factory):
    return Bench(tmp_path_factory.mktemp("faults"))


@pytest.fixture
def holds():
    """Check that nothing failed that must not."""

    def check(tally: Tally, *, at_least: int) -> None:
        shown = "\n".join(f"{o.part} | {o.case} | {o.kind} | {o.detail}" for o in tally.failures)
        assert not tally.failures, f"seed {SEED}\n{shown}"
        assert len(tally.outcomes) >= at_least

    return check
