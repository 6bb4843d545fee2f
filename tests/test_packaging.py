"""What people are told to install exists, and what the tests install is pinned."""

import re
import tomllib
from pathlib import Path

import tokenselect

ROOT = Path(__file__).parents[1]
PROJECT = tomllib.loads((ROOT / "pyproject.toml").read_text())["project"]
PINS = re.findall(r"^([\w-]+)==", (ROOT / "constraints.txt").read_text(), flags=re.MULTILINE)
FREE = {"types-PyYAML"}  # stubs: nothing that runs depends on their version


def test_every_extra_that_is_named_exists():
    texts = [*(ROOT / "src").rglob("*.py"), *(ROOT / "docs").glob("*.md"), ROOT / "README.md"]
    named = {
        name for path in texts for name in re.findall(r"tokenselect\[(\w+)\]", path.read_text())
    }
    assert named and named <= PROJECT["optional-dependencies"].keys()


def test_every_package_is_pinned():
    listed = [PROJECT["dependencies"], *PROJECT["optional-dependencies"].values()]
    names = {re.split(r"[\[<>=]", line)[0] for lines in listed for line in lines}
    assert names - {*PINS, *FREE, "tokenselect"} == set()


def test_the_public_names_are_there():
    assert all(hasattr(tokenselect, name) for name in tokenselect.__all__)
    assert tokenselect.__version__ == PROJECT["version"]


def test_the_changelog_dates_all_versions_but_the_coming_one():
    headings = re.findall(r"^## (.+)$", (ROOT / "CHANGELOG.md").read_text(), re.MULTILINE)
    versions, dates = zip(*(heading.split(" – ") for heading in headings), strict=True)
    assert all(re.fullmatch(r"\d{4}-\d\d-\d\d", date) for date in dates[1:])
    assert dates[0] == "unreleased" or re.fullmatch(r"\d{4}-\d\d-\d\d", dates[0])
    assert PROJECT["version"].removesuffix(".dev0") in versions
