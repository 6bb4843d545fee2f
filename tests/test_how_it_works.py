"""The code of the page on how it works runs, and prints what the page says."""

import re
from pathlib import Path

PAGE = Path(__file__).parents[1] / "docs" / "how_it_works.md"


def test_the_page_on_how_it_works_prints_what_it_says(capsys):
    text = PAGE.read_text()
    code = "\n".join(re.findall(r"```python\n(.*?)```", text, flags=re.DOTALL))
    exec(compile(code, str(PAGE), "exec"), {"__name__": "how_it_works"})
    printed = capsys.readouterr().out
    claimed = re.findall(r"# (TokenGrid\(.*\))$", text, flags=re.MULTILINE)
    assert len(claimed) == 3 and all(line in printed for line in claimed)


def test_every_place_it_names_is_there():
    root = PAGE.parents[1]
    places = re.findall(r"`((?:tests/)?[\w/]+(?:/|\.py))`", PAGE.read_text())
    missing = [
        p for p in places if not any((b / p).exists() for b in (root, root / "src/tokenselect"))
    ]
    assert len(places) > 15
    assert [p for p in missing if p != "baselines.py"] == []


def walks() -> list[list[tuple[str, list[str]]]]:
    """Read the tables of both walks: the file and the names of each row."""
    parts = re.split(r"^### .* way through .*$", PAGE.read_text(), flags=re.MULTILINE)[1:]
    rows = [re.findall(r"^\| `([\w/]+\.py)` \| (.*?):", part, re.MULTILINE) for part in parts]
    return [[(file, re.findall(r"`(\w+)`", names)) for file, names in walk] for walk in rows]


def test_every_step_of_a_walk_is_called_from_a_row_above():
    source = PAGE.parents[1] / "src" / "tokenselect"
    assert [len(walk) for walk in walks()] == [8, 10]
    for walk in walks():
        above = ""
        for file, names in walk:
            text = (source / file).read_text()
            for name in names:
                assert re.search(rf"(def|class) {name}\b", text), f"{file} has no {name}"
                assert not above or re.search(rf"\b{name}\b", above), f"nothing calls {name}"
            above += text


def test_the_house_names_files_that_are_there():
    tree = re.search(r"```text\nsrc/tokenselect/\n(.*?)```", PAGE.read_text(), flags=re.DOTALL)[1]
    source = PAGE.parents[1] / "src" / "tokenselect"
    listed = [line[2:] for line in tree.splitlines() if not line.startswith("   ")]
    folders = {word for line in listed for word in re.findall(r"(\w+)/", line)}
    assert folders == {path.parent.name for path in source.glob("*/__init__.py")}
    for line in re.split(r"\n  (?=\w)", tree):
        folder, named = source / line.split("/")[0].strip(), re.findall(r"\b[a-z_]+\b", line)
        if folder.name in ("ops", "training", "data", "comparison", "weights"):  # named one by one
            files = {path.stem for path in folder.glob("[a-z]*.py")}
            assert files <= set(named), files - set(named)
