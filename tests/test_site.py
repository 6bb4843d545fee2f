"""The site of the documentation builds without a warning and asks no other host for anything."""

import re
import subprocess
import sys
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[1]
LOADED = re.compile(r'<(?:script|link|img|iframe)\b[^>]*?(?:src|href)="(?:https?:)?//[^"]*"')


@pytest.fixture(scope="module")
def site(tmp_path_factory) -> Path:
    pytest.importorskip("mkdocs")
    folder = tmp_path_factory.mktemp("site")
    words = [sys.executable, "-m", "mkdocs", "build", "--strict", "--quiet", "--site-dir", folder]
    built = subprocess.run(words, cwd=ROOT, capture_output=True, text=True)
    assert built.returncode == 0, built.stdout + built.stderr
    return folder


@pytest.mark.slow
def test_the_site_has_every_page(site):
    written = {page.stem for page in (ROOT / "docs").glob("*.md")}
    assert {"index", *written} <= {page.stem for page in site.glob("*.html")}
    assert 'id="tokenselect.insert_selectors"' in (site / "api" / "tokenselect.html").read_text()


@pytest.mark.slow
def test_no_page_of_the_site_asks_another_host_for_anything(site):
    pages = [page.read_text() for page in site.rglob("*.html")]
    asked = [
        text for page in pages for text in LOADED.findall(page) if 'rel="canonical"' not in text
    ]
    assert len(pages) > 20 and asked == []
