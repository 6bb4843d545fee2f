"""The page of results shows what was measured, and all of it."""

import re

from benchmarks.fill_results import BLOCK, PAGE, TABLES, fill


def test_the_tables_of_the_page_are_those_that_were_measured():
    page = PAGE.read_text()
    assert fill(page) == page


def test_no_measured_table_is_left_out():
    shown = {found[1] for found in BLOCK.finditer(PAGE.read_text())}
    assert shown == {path.stem for path in TABLES.glob("*.md")}


def test_no_place_of_a_machine_is_in_the_results():
    for path in TABLES.glob("*.json"):
        assert not re.search(r'"/\w', path.read_text())
