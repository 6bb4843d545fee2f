"""`tokenselect teach` and `tokenselect headroom`: what a dense checkpoint can tell."""

import pytest
import torch

from tokenselect import create_model
from tokenselect.checkpoints import load_model, plan_of, save_model
from tokenselect.cli.main import main
from tokenselect.data.synthetic import CLASS_NAMES
from tokenselect.training.recipe import DataRecipe, Recipe


@pytest.fixture
def dense(tmp_path):
    data = DataRecipe(source="synthetic", frames=8, size=32, val_clips=20)
    model = create_model("mvit_mini", num_classes=len(CLASS_NAMES), frames=8, size=32)
    metadata = {"recipe": Recipe(name="dense", data=data).to_dict()}
    save_model(model, tmp_path / "dense", class_names=CLASS_NAMES, metadata=metadata)
    return tmp_path / "dense"


def test_a_taught_model_is_the_dense_one_with_selectors(dense, tmp_path, capsys):
    options = ["--plan", "T0_0.5-S2_0.5", "--steps", "2", "--batch-size", "4", "--workers", "0"]
    main(["teach", str(dense), "train", "--out", str(tmp_path / "taught"), *options])
    before, after = load_model(dense), load_model(tmp_path / "taught")
    assert str(plan_of(after)) == "T0_0.5-S2_0.5"
    assert after.info.metadata["recipe"]["model"]["scorer"] == "taught"
    weights = after.state_dict()
    assert all(torch.equal(weights[n], value) for n, value in before.state_dict().items())
    assert "T0_0.5" in capsys.readouterr().out


def test_few_clips_teach_and_too_few_to_hold_one_out_are_refused(dense, tmp_path, capsys):
    options = ["--plan", "T0_0.5", "--out", str(tmp_path / "x"), "--steps", "2", "--workers", "0"]
    main(["teach", str(dense), "train", *options, "--clips", "8"])
    assert str(plan_of(load_model(tmp_path / "x"))) == "T0_0.5"
    with pytest.raises(SystemExit):
        main(["teach", str(dense), "train", *options, "--clips", "4"])
    assert "teaching needs at least 5 clips, got 4 of train" in capsys.readouterr().err


def test_headroom_gives_advice_for_frames_and_regions(dense, capsys):
    for option in (["--keep", "2"], ["--plan", "S2_0.3"]):
        main(["headroom", str(dense), "val", *option, "--choices", "3", "--workers", "0"])
        out = capsys.readouterr().out
        assert "20 clips" in out and "uniform" in out
    with pytest.raises(SystemExit):
        main(["headroom", str(dense), "val"])
    assert "give either keep or plan" in capsys.readouterr().err
