"""The page: markup, style and script that lie beside this file, with the story put in."""

from __future__ import annotations

import html
import json
import os
from importlib import resources
from pathlib import Path
from typing import Any

from tokenselect.visualization.explanation import Explanation
from tokenselect.visualization.report.story import story_of


def build_page(story: dict[str, Any]) -> str:
    """Give the HTML of one story; it needs no other file and asks for none."""
    return (
        read_part("page.html")
        .replace("{{title}}", html.escape(f"{story['clip']['name']} · {story['model']}"))
        .replace("{{sections}}", read_part("sections.html").rstrip())
        .replace("{{style}}", read_part("style.css"))
        .replace("{{script}}", read_part("script.js"))
        .replace("{{story}}", embed_json(story))
    )


def write_report(
    path: str | os.PathLike[str], explanation: Explanation, *, start: str | None = None
) -> None:
    """Write the report of an explanation; it opens with plan `start`, or with the last."""
    page = build_page(story_of(explanation, start=start))
    Path(path).write_text(page, encoding="utf-8")


def read_part(name: str) -> str:
    """Read a file of this folder, also from a zipped package."""
    return (resources.files(__package__) / name).read_text(encoding="utf-8")


def embed_json(story: dict[str, Any]) -> str:
    """Write JSON that cannot end the script element that it stands in."""
    text = json.dumps(story, ensure_ascii=False, separators=(",", ":"), allow_nan=False)
    return text.replace("<", "\\u003c").replace("\u2028", "\\u2028").replace("\u2029", "\\u2029")
