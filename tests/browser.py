"""Debian's Chromium for the tests of pages; they are skipped with a notice where it is not."""

import shutil
from collections.abc import Iterator
from contextlib import contextmanager

import pytest

BROWSER = shutil.which("chromium") or shutil.which("chromium-browser")
OPTIONS = [
    "--no-sandbox",
    "--disable-gpu",
    "--disable-background-networking",
    "--disable-component-update",
    "--disable-sync",
    "--no-first-run",
]
NEEDS_BROWSER = [
    pytest.mark.slow,
    pytest.mark.skipif(BROWSER is None, reason="the browser tests need Debian's chromium"),
]


@contextmanager
def open_browser(*options: str) -> Iterator:
    playwright = pytest.importorskip(
        "playwright.sync_api", reason="the browser tests need playwright (pip install playwright)"
    )
    with playwright.sync_playwright() as started:
        running = started.chromium.launch(
            executable_path=BROWSER, headless=True, args=[*OPTIONS, *options]
        )
        yield running
        running.close()


def watch(page, allowed: tuple[str, ...]) -> list[str]:
    """Note every error of a page, and every request to anywhere but the allowed beginnings."""
    wrong: list[str] = []
    page.on("pageerror", lambda error: wrong.append(str(error)))
    page.on("console", lambda said: wrong.append(said.text) if said.type == "error" else None)

    def note(asked) -> None:
        if not asked.url.startswith(allowed):
            wrong.append(asked.url)

    page.on("request", note)
    return wrong
