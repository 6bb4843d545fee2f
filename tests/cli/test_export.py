"""The command's words and answers; the tutorial's test has it write a real file."""

import json

import pytest
import torch

from tests.weights.models import scramble
from tokenselect.checkpoints import save_model
from tokenselect.cli import export as command
from tokenselect.cli.main import main
from tokenselect.export import LogitDifference
from tokenselect.models import create_model

SMALL = {"num_classes": 2, "frames": 4, "size": 32}


def test_export_tells_what_was_written_and_how_near_it_is(tmp_path, capsys, monkeypatch):
    given = {}

    def write(model, path, file_format, **options):
        path.write_bytes(bytes(2**20))
        given.update(options, suffix=file_format.suffix, labels=model.info.id2label)
        return LogitDifference(num_clips=5, largest=1e-6)

    monkeypatch.setattr(command, "export_model", write)
    model = scramble(create_model("mvit_mini", plan="T0=1", **SMALL))
    save_model(model, tmp_path / "run", class_names=["up", "down"])
    out = tmp_path / "model.pt2"
    words = f"export {tmp_path / 'run'} --format torch --out {out} --videos sample:0 --repeats 0"
    main([*words.split(), "--json"])
    told = json.loads(capsys.readouterr().out)
    assert (told["plan"], told["input"], told["clips_compared"]) == ("T0=1", [3, 4, 32, 32], 5)
    assert (told["largest_difference"], told["megabytes"], told["milliseconds"]) == (1e-6, 1, None)
    assert given["labels"] == {0: "up", 1: "down"} and given["suffix"] == ".pt2"
    assert given["clips"].shape == torch.Size([1, 3, 4, 32, 32])


def test_export_of_nothing_says_what_is_wrong(tmp_path, capsys):
    with pytest.raises(SystemExit):
        main(["export", str(tmp_path / "nothing")])
    assert "no checkpoint at" in capsys.readouterr().err
