"""The README's code runs, from top to bottom, as a reader would run it."""

import re
from pathlib import Path

import pytest
import torch

from tests.contracts import hosts
from tokenselect import create_model
from tokenselect.measure import count_macs

README = Path(__file__).parents[1] / "README.md"
COST = r"\| `(\w+)` \| `?([\w.-]+)`? \| ([\d.]+) \| [\d.]+ \| (–|[\d.]+ %) \|"


@pytest.fixture
def videomae(monkeypatch):
    """The published architecture on the meta device: the README's weights need a download."""
    transformers = hosts.transformers()
    kind, config = transformers.VideoMAEForVideoClassification, transformers.VideoMAEConfig()

    def build(name: str) -> torch.nn.Module:
        assert name == "MCG-NJU/videomae-base-finetuned-kinetics"
        with torch.device("meta"):
            return kind(config)

    monkeypatch.setattr(kind, "from_pretrained", build)


def test_the_python_of_the_readme_runs(videomae, capsys, tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    blocks = re.findall(r"```python\n(.*?)```", README.read_text(), flags=re.DOTALL)
    assert blocks, "the README has no Python"
    exec(compile("\n".join(blocks), str(README), "exec"), {"__name__": "readme"})
    assert "tensor(" in capsys.readouterr().out


def test_the_first_example_saves_what_it_says(videomae):
    text = README.read_text()
    first = re.search(r"```python\n(.*?)```", text, flags=re.DOTALL)
    dense, selected = map(float, re.search(r"# ([\d.]+) → ([\d.]+) GMACs", text).groups())
    names: dict = {}
    exec(compile(first[1], str(README), "exec"), names)
    model, shape = names["model"], (1, 16, 3, 224, 224)
    assert round(count_macs(model, *shape).gmacs, 1) == selected
    names["tokenselect"].remove_selectors(model)
    assert round(count_macs(model, *shape).gmacs, 1) == dense


def test_the_costs_are_those_that_profile_counts():
    rows = re.findall(COST, README.read_text())
    assert len(rows) == 6
    for name, plan, gmacs, said in rows:
        with torch.device("meta"):
            model = create_model(name, plan=plan)
        count = count_macs(model, 1, 3, *model.default_input)
        sites = [f"token_selectors.{site.partition('_')[0]}" for site in plan.split("-")]
        share = sum(count.by_module.get(site, 0) for site in sites) / count.total
        assert f"{count.gmacs:.1f}" == gmacs
        assert said == (f"{100 * share:.2f} %" if share else "–")


def test_the_links_of_the_readme_lead_somewhere():
    links = re.findall(r"\]\(([^)#:]+)\)", README.read_text())
    assert [link for link in links if not (README.parent / link).exists()] == []


def test_the_readme_leads_to_every_page_of_the_docs():
    pages = {f"docs/{page.name}" for page in (README.parent / "docs").glob("*.md")}
    assert pages - set(re.findall(r"\]\((docs/[^)#]+)\)", README.read_text())) == set()


def test_make_knows_the_commands_of_the_readme():
    makefile = (README.parent / "Makefile").read_text()
    commands = re.findall(r"^make (\w+)", README.read_text(), flags=re.MULTILINE)
    assert commands == ["demo", "test"]
    assert all(f"\n{command}:" in makefile for command in commands)
