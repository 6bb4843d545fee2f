"""Every command that a page shows exists, with every option it is given."""

import re
import shlex
from pathlib import Path

import pytest

from tokenselect.cli.main import COMMANDS
from tokenselect.cli.options import build_parser
from tokenselect.training.recipe import recipe_parser

ROOT = Path(__file__).parents[1]
PAGES = [ROOT / "README.md", *sorted((ROOT / "docs").glob("*.md"))]
SHOWN = re.compile(r"(?:^|`)(tokenselect [a-z][^`\n]*)", flags=re.MULTILINE)


def shown_commands(page: Path) -> list[list[str]]:
    """List the words of the page's commands, in blocks and in the text."""
    lines = SHOWN.findall(page.read_text())
    return [shlex.split(line.replace("…", ""), comments=True)[1:] for line in lines]


def known_options(words: list[str]) -> set[str]:
    """Name the options that the command of these words takes."""
    if words[0] == "train":
        keys = {action.dest for action in recipe_parser()._actions}
        return {"resume", "help", *keys}
    name = next(name for name in COMMANDS if words[: len(name.split())] == name.split())
    options = {action.dest for action in build_parser(COMMANDS[name].load(), prog=name)._actions}
    return {*options, *(name.replace("_", "-") for name in options)}


@pytest.mark.parametrize("page", PAGES, ids=lambda page: page.name)
def test_the_commands_of_a_page_exist_with_their_options(page):
    for words in shown_commands(page):
        given = {word[2:].partition("=")[0] for word in words if word.startswith("--")}
        known = known_options(words)
        unknown = {name for name in given if name not in known and name.split(".")[0] not in known}
        assert unknown == set(), f"{page.name}: tokenselect {' '.join(words)}"


def test_commands_are_found():
    assert sum(len(shown_commands(page)) for page in PAGES) > 40


def test_the_recipes_that_pages_name_exist():
    named = {
        name for p in PAGES for name in re.findall(r"recipes/[a-z][\w.=-]*\.yaml", p.read_text())
    }
    assert named and [name for name in sorted(named) if not (ROOT / name).is_file()] == []
