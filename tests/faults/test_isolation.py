"""The judge itself: what must not be is seen."""

import os
import signal
import time

import pytest

from benchmarks.faults.isolation import Case, WrongFigureError, run_forked, run_isolated


def refuse(text):
    raise ValueError(text)


def mistake():
    raise TypeError("of ours")


def wrong():
    raise WrongFigureError("2 is not 3")


@pytest.mark.parametrize(
    ("call", "kind"),
    [
        (lambda: None, "answered"),
        (lambda: refuse("a.mp4 is broken"), "refused"),
        (lambda: refuse("is broken"), "nameless error"),
        (mistake, "traceback"),
        (wrong, "wrong figure"),
        (lambda: os.kill(os.getpid(), signal.SIGKILL), "crash"),
        (lambda: time.sleep(60), "hang"),
    ],
)
def test_every_kind_of_failure_is_told_and_the_next_case_runs(call, kind):
    cases = [Case("p", "one", call, ("a.mp4",)), Case("p", "two", lambda: None, ())]
    tally = run_isolated(cases, seconds=1.0 if kind == "hang" else 60.0)
    assert [outcome.kind for outcome in tally.outcomes] == [kind, "answered"]
    assert tally.peak_mb > 1


def test_ctrl_c_before_a_command_begins_waits_for_it():
    early = run_forked(["--version"], prepare=lambda: time.sleep(0.2), after=0, by=signal.SIGINT)
    assert (early.code, early.told) == (130, "tokenselect: interrupted\n")
