"""What docs/serve.md says is so: options, routes, limits."""

import re
import shlex
from pathlib import Path

import pytest

from tokenselect.cli.main import COMMANDS
from tokenselect.cli.options import build_parser
from tokenselect.web.guard import Limits

DOCS = Path(__file__).parents[2] / "docs"
PAGE = (DOCS / "serve.md").read_text()


def test_every_option_it_names_exists():
    parser = build_parser(COMMANDS["serve"].load(), prog="serve")
    known = {name.replace("_", "-") for action in parser._actions for name in action.option_strings}
    lines = re.findall(r"^tokenselect serve.*", PAGE, re.MULTILINE)
    words = {word for line in lines for word in shlex.split(line, comments=True)}
    assert lines and {word for word in words if word.startswith("--")} <= known


def test_its_table_lists_the_routes():
    pytest.importorskip("fastapi", reason="the web tests need fastapi (pip install fastapi)")
    from tests.web.tiny import make_app

    paths = make_app().openapi()["paths"]
    there = {f"{verb.upper()} {path}" for path, verbs in paths.items() for verb in verbs}
    told = set(re.findall(r"^\| `(\w+ [^`?]+)", PAGE, re.MULTILINE))
    assert told == there - {"GET /api/samples/{number}.jpg"}


def test_its_limits_are_the_defaults():
    limits = Limits()
    assert f"after {limits.max_idle / 60:.0f} minutes without use" in PAGE
    assert (limits.max_waiting, limits.max_results) == (4, 8)
    told = f"nothing for {limits.max_stall:g} seconds, or less than {limits.min_rate / 1024:g} KB"
    assert told in PAGE
    assert "up to four wait, and the last eight results" in PAGE


def test_it_names_every_key_of_a_result():
    from tokenselect.web.schemas import Guess, ShownClip, ShownPlan, ShownSite, Story

    told = set(re.findall(r"`(\w+)`", PAGE))
    for part in (Story, ShownClip, ShownPlan, ShownSite, Guess):
        assert set(part.model_fields) - {"start"} <= told


def test_its_picture_is_there_and_small():
    (picture,) = re.findall(r"\]\((images/[^)]+)\)", PAGE)
    assert 1000 < (DOCS / picture).stat().st_size < 150_000
