"""The pages of results show what was measured, and all of it."""

import re
from pathlib import Path

import pytest

from benchmarks.fill_results import DOCS, RESULTS, build_pages, read_cells, to_mean

README = DOCS.parent / "README.md"
FINDINGS = ("results.md", "results_notes.md")
FIGURE = re.compile(r"(?<![\w.])\d+(?:\.\d+|e-\d+)")  # a decimal; not the ratio of a plan
LINK = re.compile(r"\]\(([\w./-]+\.(?:md|txt|json))(?:#([\w-]+))?\)")


def read_statements(page: str) -> list[str]:
    """Split a page into paragraphs, list items and rows, without what quotes the paper."""
    return [part for part in re.split(r"\n\n|\n(?=[|-] )", page) if not part.startswith("Paper:")]


def read_source(path: Path, anchor: str) -> str:
    """Read what a link leads to: a section of a page, a raw file, the percentages of a JSON."""
    text = path.read_text()
    if path.suffix == ".json":
        values = re.findall(r"\b0\.\d+", text)
        return " ".join(f"{100 * float(value):.1f}" for value in values)
    sections = re.split(r"^## ", text, flags=re.MULTILINE) if anchor else [text]
    return "".join(part for part in sections if not anchor or slug(part) == anchor)


def slug(section: str) -> str:
    """Make the anchor of a section from its first line, as MkDocs and GitHub do."""
    return re.sub(r"[^\w -]", "", section.partition("\n")[0].lower()).replace(" ", "-")


def find_unsupported(statement: str, folder: Path = DOCS) -> set[str]:
    """Name the figures that stand in no table or file that the statement links."""
    sources = [read_source(folder / path, anchor) for path, anchor in LINK.findall(statement)]
    return set(FIGURE.findall(LINK.sub("]", statement))) - set(FIGURE.findall(" ".join(sources)))


def test_the_pages_of_tables_show_what_was_measured():
    pages = build_pages()
    assert {path: path.read_text() for path in pages} == pages


def test_no_measured_table_is_left_out():
    shown = re.findall(r"results/tables/(\w+)\.md\)", "".join(build_pages().values()))
    assert sorted(shown) == sorted(path.stem for path in RESULTS.glob("*.md"))


def test_every_figure_of_the_findings_stands_in_a_table_that_its_statement_links():
    statements = [part for name in FINDINGS for part in read_statements((DOCS / name).read_text())]
    unsupported = {part: missing for part in statements if (missing := find_unsupported(part))}
    assert unsupported == {}


@pytest.mark.parametrize(
    ("row", "table", "plan"),
    [
        ("| GRID lip reading", "grid_adverb_mvit_words", "T0=3"),
        ("| GRID, the sentence cut", "grid_cut_adverb_mvit_words", "T0=3"),
        ("| GRID faces, regions alone", "grid_faces_adverb_mvit_lips", "S0_0.16"),
        (
            "| GRID faces, frames and regions",
            "grid_faces_cut_adverb_mvit_lips_words",
            "T0=3-S0_0.16",
        ),
        ("| a sign among other signs", "streams_mvit_words", "T0=3"),
        ("| LSA-20 sign language", "lsa20_mvit_default", "T0_0.4"),
    ],
)
def test_the_readme_shows_the_rows_that_were_measured(row, table, plan):
    rows = read_statements(README.read_text())
    cost, *shown = FIGURE.findall(next(part for part in rows if part.startswith(row)))
    _, cells = read_cells(table)
    rows = [(plan, "stts-exact"), (plan, "uniform"), (plan, "random"), ("dense", "start")]
    measured = {method: cells[at, method] for at, method in rows if (at, method) in cells}
    assert shown == [to_mean(cell["top-1 %"]) for cell in measured.values()]
    ratio = float(measured["stts-exact"]["GMACs"]) / float(measured["start"]["GMACs"])
    assert float(cost) == round(ratio, 2)


def test_the_readme_says_of_teaching_what_was_measured():
    said = next(x for x in read_statements(README.read_text()) if "tokenselect teach" in x)
    assert FIGURE.findall(said) and not find_unsupported(said, README.parent)


def test_a_figure_that_was_not_measured_is_found():
    table = "([table](results_lsa20.md#decisive-mvit_mini))"
    assert find_unsupported(f"learned 93.5, uniform 93.8 % {table}") == {"93.8"}
    assert find_unsupported("learned 93.5 %") == {"93.5"}


def test_no_place_of_a_machine_is_in_the_results():
    for path in RESULTS.glob("*.json"):
        assert not re.search(r'"/\w', path.read_text())
