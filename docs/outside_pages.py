"""Pages of the site that lie outside `docs/`: the README, the benchmarks' results, the API.

MkDocs calls the functions whose names begin with `on_` (`hooks` in mkdocs.yml). The files stay
where people look for them; links that are right there are made right for the site.
"""

import re
from pathlib import Path
from typing import Any

from mkdocs.config.defaults import MkDocsConfig
from mkdocs.structure.files import File, Files
from mkdocs.structure.pages import Page

ROOT = Path(__file__).parents[1]
HOME = "README.md"
RESULTS = "benchmarks/results"
OUTSIDE = ("CONTRIBUTING.md", "CHANGELOG.md", "CITATION.cff")

API = {
    "tokenselect": ["tokenselect"],
    "adapters": ["tokenselect.adapters"],
    "checkpoints": ["tokenselect.checkpoints", "tokenselect.checkpoints.hub"],
    "comparison": ["tokenselect.comparison"],
    "data": ["tokenselect.data", "tokenselect.data.clips", "tokenselect.data.synthetic"],
    "export": ["tokenselect.export"],
    "inference": [
        "tokenselect.inference.predict",
        "tokenselect.inference.explain",
        "tokenselect.inference.preprocessor",
        "tokenselect.inference.bulk",
        "tokenselect.inference.rows",
    ],
    "insertion": ["tokenselect.insertion"],
    "measure": ["tokenselect.measure"],
    "ops": ["tokenselect.ops"],
    "selectors": ["tokenselect.selectors"],
    "training": ["tokenselect.training.recipe", "tokenselect.training.callbacks"],
    "visualization": [
        "tokenselect.visualization.explanation",
        "tokenselect.visualization.pictures",
        "tokenselect.visualization.report",
    ],
    "weights": ["tokenselect.weights"],
}


def on_config(config: MkDocsConfig) -> MkDocsConfig:
    """Leave out pages that are not written yet; the last entry gets a page for each package."""
    *written, api = config.nav or []
    config.nav = [entry for entry in map(without_unwritten, written) if entry is not None]
    config.nav.append({title: [{name: f"api/{name}.md"} for name in API] for title in api})
    return config


def without_unwritten(entry: dict[str, Any]) -> dict[str, Any] | None:
    """Drop the pages of an entry of the navigation that do not exist, and one without any."""
    ((title, place),) = entry.items()
    if isinstance(place, list):
        pages = [page for page in map(without_unwritten, place) if page is not None]
        return {title: pages} if pages else None
    is_written = place == "index.md" or place in OUTSIDE or (ROOT / "docs" / place).is_file()
    return entry if is_written else None


def on_files(files: Files, config: MkDocsConfig) -> Files:
    """Add the pages that lie elsewhere."""
    files.append(File.generated(config, "index.md", content=(ROOT / HOME).read_text()))
    results = sorted(path for path in (ROOT / RESULTS).rglob("*") if path.is_file())
    for path in [ROOT / name for name in OUTSIDE] + results:
        name = path.relative_to(ROOT).as_posix()
        files.append(File.generated(config, name, abs_src_path=str(path)))
    for name, modules in API.items():
        text = "\n\n".join([f"# {name}", *(f"::: {module}" for module in modules)])
        files.append(File.generated(config, f"api/{name}.md", content=text))
    return files


def on_page_markdown(markdown: str, page: Page, config: MkDocsConfig, files: Files) -> str:
    """Point links of the README into `docs/`, and of `docs/` out of it, at the site's places."""
    if "/" in page.file.src_uri:
        return markdown
    markdown = markdown.replace("](../README.md", "](index.md")
    return re.sub(r"\]\((?:\.\./|docs/)", "](", markdown)
