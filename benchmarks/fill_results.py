"""Copies the tables of `benchmarks/results/tables` into docs/results.md, between their marks.

python -m benchmarks.fill_results
"""

import re
from pathlib import Path

TABLES = Path(__file__).parent / "results" / "tables"
PAGE = Path(__file__).parents[1] / "docs" / "results.md"
BLOCK = re.compile(r"<!-- table (\w+) -->\n.*?<!-- end -->", flags=re.DOTALL)


def read_table(name: str) -> str:
    """Give a table without its heading: the command, the lines, the seeds, the warnings."""
    return (TABLES / f"{name}.md").read_text().split("\n", maxsplit=2)[2].strip()


def fill(page: str) -> str:
    """Put every table between its marks."""
    return BLOCK.sub(
        lambda found: f"<!-- table {found[1]} -->\n{read_table(found[1])}\n<!-- end -->", page
    )


if __name__ == "__main__":
    PAGE.write_text(fill(PAGE.read_text()))
