import json

import pytest
import torch

from tests.weights.models import scramble
from tokenselect.cli.main import main
from tokenselect.export import ProgramModel
from tokenselect.models import create_model
from tokenselect.pretrained import save_model

SMALL = {"num_classes": 2, "frames": 4, "size": 32}


@pytest.mark.slow
def test_export_writes_a_checked_file_of_a_saved_model(tmp_path, capsys):
    model = scramble(create_model("mvit_mini", plan="T0=1", **SMALL))
    save_model(model, tmp_path / "run", class_names=["up", "down"])
    out = tmp_path / "model.pt2"
    words = f"export {tmp_path / 'run'} --format torch --out {out} --videos sample:0 --repeats 0"
    main([*words.split(), "--json"])
    told = json.loads(capsys.readouterr().out)
    assert (told["plan"], told["input"], told["clips_compared"]) == ("T0=1", [3, 4, 32, 32], 5)
    assert told["largest_difference"] < 1e-4
    assert told["milliseconds"] is None
    opened = ProgramModel(out)
    assert opened.metadata["class_names"] == ["up", "down"]
    with torch.no_grad():
        video = torch.randn(3, 3, 4, 32, 32)
        torch.testing.assert_close(opened(video), model(video), rtol=0, atol=1e-5)


def test_export_of_nothing_says_what_is_wrong(tmp_path, capsys):
    with pytest.raises(SystemExit):
        main(["export", str(tmp_path / "nothing")])
    assert "no checkpoint at" in capsys.readouterr().err
