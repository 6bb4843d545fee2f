"""The tutorial can be followed: its code and commands run one after the other.

Some words are changed for speed: there are fewer plans to count, and the exported file is a program
of torch, for writing ONNX takes as long as all the rest.
"""

import re
import shlex
from pathlib import Path

import pytest
import torch

from tokenselect import load_model
from tokenselect.cli.main import main
from tokenselect.export import ProgramModel

PAGE = Path(__file__).parents[1] / "docs" / "tutorial.md"
QUICK = {
    "--target-gmacs 0.02": "--target-gmacs 0.02 --sites T0 --count 1",
    "--format onnx --out model.onnx": "--format torch --out model.pt2",
}
LEFT = ["dense.json", "kept.png", "mine.yaml", "model.pt2", "rows.parquet", "selected.json"]


def steps() -> list[tuple[str, str]]:
    """List the page's blocks as (language, text)."""
    text = PAGE.read_text()
    for slow, quick in QUICK.items():
        assert slow in text
        text = text.replace(slow, quick)
    return re.findall(r"```(\w+)\n(.*?)```", text, flags=re.DOTALL)


def follow(language: str, text: str) -> None:
    """Do what a reader does with a block."""
    if language == "python":
        exec(compile(text, str(PAGE), "exec"), {"__name__": "tutorial"})
    elif language == "yaml":
        Path("mine.yaml").write_text(text)
    else:
        for line in text.splitlines():
            program, *words = shlex.split(line)
            assert program == "tokenselect"
            main(words)


@pytest.mark.slow
def test_the_tutorial_can_be_followed(tmp_path, monkeypatch, capsys):
    pytest.importorskip("pyarrow")
    monkeypatch.chdir(tmp_path)
    for language, text in steps():
        follow(language, text)
    assert sorted(path.name for path in tmp_path.iterdir() if path.is_file()) == LEFT
    told = "T0_0.5-S4_0.6 {0: 'right-down', 1: 'right-up'} torch.Size([1, 2])"
    assert told in capsys.readouterr().out
    opened, video = ProgramModel(tmp_path / "model.pt2"), torch.randn(3, 3, 8, 48, 48)
    assert opened.metadata["class_names"] == ["right-down", "right-up"]
    with torch.no_grad():
        expected = load_model("runs/selected")(video)
        torch.testing.assert_close(opened(video), expected, rtol=0, atol=1e-5)
