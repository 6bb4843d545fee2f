"""What docs/seeing.md tells people to type works as it stands."""

import re
import shlex
from pathlib import Path

import pytest

from tokenselect.cli.main import main

PAGE = (Path(__file__).parents[2] / "docs" / "seeing.md").read_text()
LINES = [
    line for block in re.findall(r"```sh\n(.*?)```", PAGE, re.DOTALL) for line in block.splitlines()
]
OURS = [line for line in LINES if "sample" in line or "--repeats 0" in line]


@pytest.mark.slow
@pytest.mark.parametrize("line", OURS)
def test_commands_on_our_own_clips_run(line, tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    name, *arguments = shlex.split(line, comments=True)
    assert name == "tokenselect"
    if "--repeats" not in arguments:
        arguments += ["--repeats", "1"]
    if "calibrate" in arguments:
        arguments += ["--sites", "T0", "--count", "1"]  # fewer plans to count
    main(arguments)
    out = [word for word in arguments if word.startswith(("kept.", "two."))]
    assert all((tmp_path / word).stat().st_size > 1000 for word in out)


@pytest.mark.slow
def test_the_python_runs(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    (code,) = re.findall(r"```python\n(.*?)```", PAGE, re.DOTALL)
    exec(compile(code, "docs/seeing.md", "exec"), {})
    assert (tmp_path / "kept.png").stat().st_size > 1000


def test_its_pictures_are_there_and_small():
    pictures = re.findall(r"\]\((images/[^)]+)\)", PAGE)
    sizes = [(Path(__file__).parents[2] / "docs" / picture).stat().st_size for picture in pictures]
    assert pictures and max(sizes) < 150_000
