"""Faults that were met once, each with a test of its own."""

import json
import os

import pytest
import torch
from safetensors import SafetensorError

from benchmarks.faults.kills import RECIPE
from benchmarks.faults.mutations import make_frames
from tokenselect.checkpoints import load_model, save_model
from tokenselect.cli.classify import find_files
from tokenselect.cli.main import main
from tokenselect.data import write_video
from tokenselect.inference.rows import Row, classify_videos
from tokenselect.locking import holding
from tokenselect.models import create_model


def test_a_run_that_another_process_trains_is_refused_with_who_it_is(tmp_path, capsys):
    recipe = tmp_path / "recipe.yaml"
    recipe.write_text(json.dumps(RECIPE))
    with holding(tmp_path / "runs" / "run"), pytest.raises(SystemExit) as ended:
        main(["train", str(recipe), "--runs", str(tmp_path / "runs")])
    assert ended.value.code == 2
    assert f"run is being written by process {os.getpid()}" in capsys.readouterr().err
    assert not (tmp_path / "runs" / "run").exists()


def test_a_list_of_videos_may_hold_any_names(tmp_path):
    listed = tmp_path / "list.txt"
    listed.write_bytes("one\u2028two.mp4\r\n\n".encode() + b"\xff.mp4\n")
    assert find_files([str(listed)]) == ["one\u2028two.mp4", os.fsdecode(b"\xff.mp4")]


def test_a_model_that_cannot_be_written_is_named_and_leaves_nothing(tmp_path, monkeypatch):
    def fill_up(tensors, path, metadata):
        path.write_bytes(b"half of it")
        raise SafetensorError("No space left on device")

    monkeypatch.setattr("tokenselect.checkpoints.hosts.save_file", fill_up)
    model = create_model("mvit_mini", num_classes=3, frames=4, size=32)
    with pytest.raises(OSError, match=r"model\.safetensors could not be written: No space left"):
        save_model(model, tmp_path / "model")
    assert list((tmp_path / "model").iterdir()) == []


@pytest.mark.parametrize("names", ["one", ["a"], [1, 2, 3], {"a": 1, "b": 2, "c": 3}])
def test_class_names_that_do_not_fit_the_outputs_are_refused(tmp_path, names):
    model = create_model("mvit_mini", num_classes=3, frames=4, size=32)
    file = save_model(model, tmp_path, metadata={})
    weights = {name: value.clone() for name, value in model.state_dict().items()}
    from safetensors import safe_open
    from safetensors.torch import save_file

    with safe_open(file, framework="pt") as opened:
        metadata = opened.metadata()
    save_file(weights, file, metadata={**metadata, "class_names": json.dumps(names)})
    with pytest.raises(ValueError, match=r"model\.safetensors has"):
        load_model(file)


@pytest.mark.parametrize("ending", [".csv", ".jsonl", ".parquet"])
def test_damaged_results_are_refused_by_name(tmp_path, ending):
    pytest.importorskip("pyarrow")
    out = tmp_path / f"rows{ending}"
    classify_videos(["a.mp4"], out, lambda videos: [Row(v) for v in videos], settings={"m": 1})
    out.write_bytes(out.read_bytes()[:-9] + b'"{\xff[')
    with pytest.raises(ValueError, match=f"rows{ending}"):
        classify_videos(["b.mp4"], out, lambda videos: [Row(v) for v in videos], settings={"m": 1})


def test_a_damaged_journal_is_refused_by_name(tmp_path):
    journal = tmp_path / "rows.csv.part"
    journal.write_text('{"settings": {"m": 1}}\n{"video": \n')
    with pytest.raises(ValueError, match=r"rows\.csv\.part"):
        classify_videos(["b.mp4"], tmp_path / "rows.csv", lambda _: [], settings={"m": 1})


def test_an_upload_of_an_unknown_codec_and_one_of_too_many_pixels_are_refused(
    tmp_path, monkeypatch
):
    pytest.importorskip("fastapi")
    from fastapi.testclient import TestClient

    from tests.web.tiny import ORIGIN, finish, make_app

    path = tmp_path / "a.mov"
    write_video(path, make_frames(16))
    with TestClient(make_app(), base_url=ORIGIN) as client:
        unknown = path.read_bytes().replace(b"avc1", b"zzzz")
        sent = client.post("/api/videos", params={"name": "a.mov"}, content=unknown)
        assert sent.status_code == 422
        assert sent.json()["detail"] == "a.mov has a video stream that no decoder knows"
        whole = client.post("/api/videos", params={"name": "a.mov"}, content=path.read_bytes())
        monkeypatch.setattr("tokenselect.data.frame_source.MAX_CLIP_PIXELS", 48 * 64 * 9)
        job = {"video": whole.json()["video"], "model": "mvit_mini", "repeats": 0}
        ended = finish(client, client.post("/api/jobs", json=job).json()["job"])
        assert ended["state"] == "failed"
        assert "a.mov needs 49,152 pixels for 16 frames; the limit is" in ended["error"]


def test_a_dropout_that_is_no_share_is_refused():
    with pytest.raises(ValueError, match=r"dropout must be in \[0, 1\), got nan"):
        create_model("mvit_mini", dropout=float("nan"))


def test_a_model_answers_the_same_after_a_damaged_file(tmp_path):
    model = create_model("mvit_mini", num_classes=3, frames=4, size=32)
    file = save_model(model, tmp_path)
    clip = torch.zeros(1, 3, 4, 32, 32)
    before = load_model(file)(clip)
    (tmp_path / "half.safetensors").write_bytes(file.read_bytes()[: file.stat().st_size // 2])
    with pytest.raises(ValueError, match=r"half\.safetensors is neither .* or damaged"):
        load_model(tmp_path / "half.safetensors")
    assert torch.equal(load_model(file)(clip), before)
