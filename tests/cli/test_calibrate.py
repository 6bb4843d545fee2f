import json

import pytest

from tokenselect.cli.calibrate import print_table
from tokenselect.cli.main import main
from tokenselect.inference.calibrate import PAPER, Calibration, Proposal

FOUND = Calibration(Proposal("dense", 70.6, 1.0), [Proposal("T0_0.6", 41.2, 0.6, 80.0, 77.5, True)])


@pytest.mark.slow
def test_a_budget_is_met(capsys):
    options = ["--size", "32", "--sites", "T5", "--repeats", "0", "--count", "2"]
    main(["calibrate", "--model=mvit_mini", "--target-gmacs=9", "--json", *options])
    told = json.loads(capsys.readouterr().out)
    assert {"model", "results", "dense", "proposals"} == set(told)
    assert [proposal["plan"] for proposal in told["proposals"]] == ["dense", "T5_0.9"]


def test_proposals_are_ready_to_paste(capsys):
    print_table("mvit_mini", FOUND, PAPER["mvit_b16"], checkpoint=None)
    printed = capsys.readouterr().out
    assert "tokens kept" in printed and "77.5" in printed and "dense" in printed
    last = printed.strip().splitlines()[-1]
    assert last == 'tokenselect.create_model("mvit_mini", plan="T0_0.6")'


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        ([], "give one target"),
        (["--target-gmacs", "1", "--sites", "X3"], "sites must be like T0,S4"),
        (["--target-gmacs", "1", "--count", "0"], "count must be at least 1"),
    ],
)
def test_wrong_values_end_with_one_line(arguments, message, capsys):
    with pytest.raises(SystemExit) as exit_:
        main(["calibrate", "--model", "mvit_mini", *arguments])
    assert exit_.value.code == 2
    assert message in capsys.readouterr().err.strip().splitlines()[-1]
