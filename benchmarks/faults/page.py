"""`docs/reliability.md`, written from the results."""

import json
from collections import Counter
from pathlib import Path
from typing import Any

from benchmarks.faults.isolation import BAD, GOOD

PARTS = ("videos", "settings", "requests", "kills")


def write_page(results: Path, page: Path) -> None:
    """Renew the tables between the marks of the page."""
    text = page.read_text(encoding="utf-8") if page.exists() else "<!-- faults -->\n<!-- end -->\n"
    before, rest = text.split("<!-- faults -->")
    _, after = rest.split("<!-- end -->")
    found = {}
    for part in PARTS:
        file = results / f"faults_{part}.json"
        if file.exists():
            found[part] = add_up(json.loads(file.read_text()))
    tables = "\n\n".join(write_part(part, result) for part, result in found.items())
    page.write_text(
        f"{before}<!-- faults -->\n\n{write_total(found)}\n\n{tables}\n\n<!-- end -->{after}"
    )


def add_up(result: dict[str, Any]) -> dict[str, Any]:
    """Add up the pieces of a part."""
    pieces = result["pieces"].values()
    counts: dict[str, Counter[str]] = {}
    for piece in pieces:
        for name, row in piece["counts"].items():
            counts.setdefault(name, Counter()).update(row)
    return {
        **result,
        "commit": ", ".join(dict.fromkeys(piece["commit"] for piece in pieces)),
        "minutes": round(sum(piece["seconds"] for piece in pieces) / 60),
        "peak_mb": max((piece["peak_mb"] for piece in pieces), default=0),
        "counts": counts,
        "failures": [failure for piece in pieces for failure in piece["failures"]],
    }


def write_total(found: dict[str, dict[str, Any]]) -> str:
    """Write the goal line: how often what must not happen has happened."""
    counts = [row for result in found.values() for row in result["counts"].values()]
    tried = sum(sum(row.values()) for row in counts)
    bad = ", ".join(f"{sum(row.get(kind, 0) for row in counts)} × {kind}" for kind in BAD)
    peak = max((result["peak_mb"] for result in found.values()), default=0)
    return f"**Of {tried:,} cases: {bad}. No process took more than {peak:,} MB.**"


def write_part(part: str, result: dict[str, Any]) -> str:
    """Write one part: its command, what was tried, what came out, the peak memory."""
    kinds = (*GOOD, *BAD)
    lines = [
        f"### {part.capitalize()}",
        "",
        f"`{result['command']}` at commit {result['commit']} ({result['machine']}, "
        f"{result['minutes']} minutes): {result['tried']}. The largest process took "
        f"{result['peak_mb']:,} MB.",
        "",
        f"| part | cases | {' | '.join(kinds)} |",
        "| --- |" + " ---: |" * (len(kinds) + 1),
    ]
    for name, row in result["counts"].items():
        cells = " | ".join(f"{row.get(kind, 0):,}" for kind in kinds)
        lines.append(f"| {name} | {sum(row.values()):,} | {cells} |")
    return "\n".join(lines)
