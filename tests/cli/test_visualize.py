import json
import re

import pytest
from PIL import Image

from tokenselect.cli.main import main
from tokenselect.data import open_video


def run(tmp_path, name, *more):
    out = tmp_path / name
    main(["visualize", "sample:3", "--out", str(out), "--repeats", "0", *more])
    return out


@pytest.mark.slow
def test_a_film_strip_of_two_plans(tmp_path, capsys):
    one = run(tmp_path, "one.png", "--width", "60", "--plan", "T0_0.5", "--method", "motion")
    both = run(
        tmp_path, "two.png", "--width", "60", "--plan", "T0_0.5,S4_0.5", "--method", "motion"
    )
    assert capsys.readouterr().out.split() == [str(one), str(both)]
    with Image.open(one) as short, Image.open(both) as tall:
        assert short.width == tall.width and tall.height > 1.5 * short.height


@pytest.mark.slow
def test_an_overlay(tmp_path):
    assert open_video(run(tmp_path, "kept.mp4", "--width", "64")).num_frames == 16


@pytest.mark.slow
def test_a_report_sets_other_budgets_beside_the_plan(tmp_path, recwarn):
    page = run(tmp_path, "kept.html").read_text()
    story = json.loads(re.search(r'application/json">(.*?)</script>', page, re.DOTALL)[1])
    costs = [plan["gmacs"] for plan in story["plans"]]
    assert story["plans"][0]["plan"] == "dense" and len(costs) > 4
    assert costs == sorted(costs, reverse=True)
    assert not [warning for warning in recwarn if "keeps all" in str(warning.message)]


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (["sample", "--out", "kept.doc"], "out must end with one of .png"),
        (["sample", "--out", "nowhere/kept.png"], "the folder of nowhere/kept.png does not exist"),
        (["samples", "--out", "kept.png"], "visualize takes one video"),
        (["sample", "--out", "kept.png", "--start", "99"], "start must be in [0, 2.00) seconds"),
    ],
)
def test_wrong_values_end_with_one_line(arguments, message, capsys):
    with pytest.raises(SystemExit) as exit_:
        main(["visualize", *arguments])
    assert exit_.value.code == 2
    assert message in capsys.readouterr().err.strip().splitlines()[-1]
