"""Tables of the results, put into a page between marks, so that no figure is typed by hand."""

import re
from pathlib import Path

from benchmarks.speed.timing import Row

MARKS = re.compile(r"<!-- speed: (\w+) -->\n.*?<!-- end -->", re.DOTALL)


def fill_page(results: dict[str, Row], path: Path) -> None:
    """Renew the table between every pair of marks whose part is known."""

    def renew(found: re.Match[str]) -> str:
        part = found[1]
        if part not in results:
            return found[0]
        return f"<!-- speed: {part} -->\n\n{to_markdown(results[part])}\n\n<!-- end -->"

    path.write_text(MARKS.sub(renew, path.read_text()))


def to_markdown(result: Row) -> str:
    """Format one part: its command and a table."""
    rows = result["rows"]
    lines = [f"`PYTHONPATH=src:. {result['command']}` ({result['machine']})", ""]
    lines += ["| " + " | ".join(rows[0]) + " |", "|" + " --- |" * len(rows[0])]
    lines += ["| " + " | ".join(map(to_cell, row.values())) + " |" for row in rows]
    return "\n".join(lines)


def to_cell(value: object) -> str:
    """Write numbers with three digits."""
    if isinstance(value, float):
        return f"{value:.0f}" if value >= 100 else f"{value:.3g}"
    return str(value)
