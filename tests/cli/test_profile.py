import json

import pytest

from tokenselect.cli.main import main


def test_json_has_the_promised_keys(capsys):
    main(["profile", "mvit_mini", "--plan", "T0_0.6-S4_0.5", "--views", "5x1", "--json"])
    costs = json.loads(capsys.readouterr().out)
    assert {"params", "gmacs", "gmacs_total", "selector_gmacs", "tokens"} <= set(costs)
    assert costs["gmacs_total"] == pytest.approx(5 * costs["gmacs"])
    assert costs["tokens"][0] == 1 + 5 * 16 * 16
    assert 0 < costs["selector_gmacs"] < 0.02 * costs["gmacs"] < 0.02 * costs["gmacs_dense"]
    assert costs["latency_ms"] > 0


def test_the_tables_name_the_grid_before_each_block(capsys):
    main(["profile", "mvit_mini", "--plan", "T0=3", "--frames", "8", "--repeats", "0"])
    printed = capsys.readouterr().out
    assert "3 × 16 × 16" in printed and "latency" not in printed


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (["mvit_mini", "--plan", "T0_2"], "(0, 1], got 2"),
        (["mvit_huge"], "no model is called 'mvit_huge'"),
        (["mvit_mini", "--views", "5"], 'like "5x1"'),
    ],
)
def test_wrong_values_end_with_their_message(arguments, message, capsys):
    with pytest.raises(SystemExit) as exit_:
        main(["profile", *arguments])
    assert exit_.value.code == 2
    assert message in capsys.readouterr().err
