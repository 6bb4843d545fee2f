"""What people are told to install exists, what the tests install is pinned, and CI tests it."""

import ast
import re
import sys
import tomllib
from pathlib import Path

import pytest
import yaml

import tokenselect

ROOT = Path(__file__).parents[1]
PROJECT = tomllib.loads((ROOT / "pyproject.toml").read_text())["project"]
PINS = dict(re.findall(r"^([\w-]+)==(.+)$", (ROOT / "constraints.txt").read_text(), re.MULTILINE))
FREE = {"types-PyYAML"}  # stubs: nothing that runs depends on their version
PACKAGES = {"yaml": "PyYAML", "PIL": "pillow", "pydantic": "fastapi", "starlette": "fastapi"}
WORKFLOWS = [ROOT / f".github/workflows/{name}.yml" for name in ("docs", "release", "tests")]
FORMS = [ROOT / f".github/ISSUE_TEMPLATE/{name}.yml" for name in ("bug", "feature", "question")]


def declared_packages():
    listed = [PROJECT["dependencies"], *PROJECT["optional-dependencies"].values()]
    return {re.split(r"[\[<>=]", line)[0] for lines in listed for line in lines}


def imported_modules(path):
    """Give the top-level names that a file imports, anywhere in it."""
    for node in ast.walk(ast.parse(path.read_text())):
        if isinstance(node, ast.Import):
            yield from (alias.name.split(".")[0] for alias in node.names)
        elif isinstance(node, ast.ImportFrom) and node.module and not node.level:
            yield node.module.split(".")[0]


def floor(package):
    """Give the lowest version of a package that pyproject.toml allows, as (major, minor)."""
    (line,) = [line for line in PROJECT["dependencies"] if line.startswith(f"{package}>=")]
    return minor_version(line.removeprefix(f"{package}>="))


def minor_version(text):
    return tuple(int(part) for part in text.split(".")[:2])


def python_versions():
    label = "Programming Language :: Python :: 3."
    return [name.split(" :: ")[-1] for name in PROJECT["classifiers"] if name.startswith(label)]


def ci_matrix():
    workflow = yaml.safe_load((ROOT / ".github/workflows/tests.yml").read_text())
    return workflow["jobs"]["tests"]["strategy"]["matrix"]


def test_every_extra_that_is_named_exists():
    texts = [*(ROOT / "src").rglob("*.py"), *(ROOT / "docs").glob("*.md"), ROOT / "README.md"]
    named = {
        name for path in texts for name in re.findall(r"tokenselect\[(\w+)\]", path.read_text())
    }
    assert named and named <= PROJECT["optional-dependencies"].keys()


def test_every_package_is_pinned():
    assert declared_packages() - {*PINS, *FREE, "tokenselect"} == set()


def test_every_package_that_is_imported_is_declared():
    paths = (ROOT / "src").rglob("*.py")
    imported = {name for path in paths for name in imported_modules(path)}
    third_party = imported - sys.stdlib_module_names - {"tokenselect"}
    assert {PACKAGES.get(name, name) for name in third_party} <= declared_packages()


def test_the_public_names_are_there():
    assert all(hasattr(tokenselect, name) for name in tokenselect.__all__)
    assert tokenselect.__version__ == PROJECT["version"]


def test_ci_runs_on_every_python_of_the_classifiers():
    assert ci_matrix()["python"] == python_versions()
    assert PROJECT["requires-python"] == f">={python_versions()[0]}"


def test_ci_runs_on_the_lowest_torch_and_on_the_pinned_one():
    versions = ci_matrix()["torch"]
    assert minor_version(versions[0]) == floor("torch")
    assert versions[-1] == PINS["torch"]


def test_ci_pairs_every_torch_with_a_torchvision():
    pairs = {row["torch"]: row["torchvision"] for row in ci_matrix()["include"]}
    assert list(pairs) == ci_matrix()["torch"]
    assert pairs[PINS["torch"]] == PINS["torchvision"]


def test_ci_calls_targets_that_the_makefile_has():
    targets = set(re.findall(r"^([a-z]+):", (ROOT / "Makefile").read_text(), re.MULTILINE))
    texts = [path.read_text() for path in [*WORKFLOWS, ROOT / ".ci/run"]]
    called = [words for text in texts for words in re.findall(r"(?:run: |^)make (.+)$", text, re.M)]
    assert called and {name for words in called for name in words.split()} <= targets


@pytest.mark.parametrize("path", WORKFLOWS, ids=lambda path: path.stem)
def test_a_workflow_has_jobs_with_few_rights(path):
    workflow = yaml.safe_load(path.read_text())
    assert workflow["permissions"] == {"contents": "read"}
    for job in workflow["jobs"].values():
        assert job["runs-on"] and all("uses" in step or "run" in step for step in job["steps"])


@pytest.mark.parametrize("path", FORMS, ids=lambda path: path.stem)
def test_an_issue_form_asks_for_something(path):
    form = yaml.safe_load(path.read_text())
    fields = [field for field in form["body"] if field["type"] != "markdown"]
    assert form["name"] and form["description"]
    assert all(field["id"] and field["attributes"]["label"] for field in fields)
    assert any(field["validations"]["required"] for field in fields if "validations" in field)


def test_the_changelog_dates_all_versions_but_the_coming_one():
    headings = re.findall(r"^## (.+)$", (ROOT / "CHANGELOG.md").read_text(), re.MULTILINE)
    versions, dates = zip(*(heading.split(" – ") for heading in headings), strict=True)
    assert all(re.fullmatch(r"\d{4}-\d\d-\d\d", date) for date in dates[1:])
    assert dates[0] == "unreleased" or re.fullmatch(r"\d{4}-\d\d-\d\d", dates[0])
    assert PROJECT["version"].removesuffix(".dev0") in versions
