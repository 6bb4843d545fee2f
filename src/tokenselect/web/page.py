"""The page's files: its own, and those of the report, which draws the results."""

from __future__ import annotations

import io
from functools import cache
from importlib import resources

from PIL import Image

from tokenselect.prediction.samples import open_sample
from tokenselect.visualization.report.page import read_part

THUMB = 96  # pixels


@cache
def index_page() -> str:
    """Give the page with the report's sections in their place."""
    return read_own("index.html").replace("{{sections}}", read_part("sections.html").rstrip())


@cache
def read_asset(name: str) -> tuple[str, str] | None:
    """Give text and media type of a file of the page; None for any other name."""
    readers = {
        "style.css": (read_own, "style.css", "text/css"),
        "script.js": (read_own, "script.js", "text/javascript"),
        "plan.js": (read_own, "plan.js", "text/javascript"),
        "report.css": (read_part, "style.css", "text/css"),
        "report.js": (read_part, "script.js", "text/javascript"),
    }
    if name not in readers:
        return None
    read, file, media_type = readers[name]
    return read(file), media_type


def read_own(name: str) -> str:
    """Read a file of this folder, also from a zipped package."""
    return (resources.files(__package__) / name).read_text(encoding="utf-8")


@cache
def sample_picture(number: int) -> bytes:
    """Draw the middle frame of a sample as a small JPEG."""
    frame = open_sample(number).frames
    middle = frame[len(frame) // 2].permute(1, 2, 0).contiguous().numpy()
    buffer = io.BytesIO()
    Image.fromarray(middle).resize((THUMB, THUMB)).save(buffer, "JPEG", quality=85)
    return buffer.getvalue()
