"""Faults that were met once, each with a test of its own."""

import json
import os
import resource
from dataclasses import replace

import pytest
import torch
from safetensors import SafetensorError

from benchmarks.faults.kills import DATA, RECIPE, SCHEDULE
from benchmarks.faults.mutations import make_frames
from tokenselect.checkpoints import load_model, save_model
from tokenselect.checkpoints.files import EMBEDDED
from tokenselect.cli.classify import list_files
from tokenselect.cli.main import main
from tokenselect.comparison.planning import Comparison, Line, plan_trials, refuse_other_videos
from tokenselect.data import TableLayout, VideoError, open_video, read_annotations, write_video
from tokenselect.data.synthetic import CLASS_NAMES, SyntheticActions
from tokenselect.export import export_model
from tokenselect.inference.rows import Row, begin_journal, classify_videos
from tokenselect.locking import holding, write_whole, writing
from tokenselect.models import create_model
from tokenselect.training.recipe import recipe_from_dict
from tokenselect.training.run import train
from tokenselect.weights import load_weights


def test_a_run_that_another_process_trains_is_refused_with_who_it_is(tmp_path, capsys):
    recipe = tmp_path / "recipe.yaml"
    recipe.write_text(json.dumps(RECIPE))
    with holding(tmp_path / "runs" / "run"), pytest.raises(SystemExit) as ended:
        main(["train", str(recipe), "--runs", str(tmp_path / "runs")])
    assert ended.value.code == 2
    assert f"run is being written by process {os.getpid()}" in capsys.readouterr().err
    assert not (tmp_path / "runs" / "run").exists()


def test_a_place_on_a_full_disk_is_named_and_left_free(tmp_path, monkeypatch):
    def fill_up(path, text):
        raise OSError(28, "No space left on device")

    monkeypatch.setattr("pathlib.Path.write_text", fill_up)
    told = pytest.raises(OSError, match=r"\.run\.owner cannot be written: No space")
    with told, holding(tmp_path / "run"):
        pass
    assert list(tmp_path.iterdir()) == []


def test_a_file_that_cannot_be_written_is_named_and_the_old_one_stays(tmp_path):
    path = tmp_path / "figures.json"
    write_whole(path, "old")
    told = pytest.raises(OSError, match=r"figures\.json could not be written: No space")
    with told, writing(path) as unfinished:
        unfinished.write_text("half of")
        raise OSError(28, "No space left on device")
    assert [path.read_text(), *tmp_path.iterdir()] == ["old", path]


def test_a_file_is_written_behind_its_link_and_to_a_device(tmp_path):
    (tmp_path / "link").symlink_to(tmp_path / "file")
    write_whole(tmp_path / "link", "text")
    write_whole("/dev/null", "text")
    assert (tmp_path / "file").read_text() == "text" and (tmp_path / "link").is_symlink()
    assert not os.path.isfile("/dev/null")


def test_shared_memory_without_room_is_named(monkeypatch):
    def fill_up(tensor):
        raise RuntimeError("unable to resize file </torch_1> to the right size: No space left")

    monkeypatch.setattr(torch.Tensor, "share_memory_", fill_up)
    with pytest.raises(OSError, match=r"/dev/shm, .*, has no room: unable to resize"):
        SyntheticActions(4)


def test_weights_of_other_classes_lend_no_classifier(tmp_path):
    model = create_model("mvit_mini", num_classes=3, frames=4, size=32)
    file = save_model(model, tmp_path, class_names=["up", "down", "left"])
    for names, is_new in ((["up", "left", "down"], True), (["up", "down", "left"], False)):
        fresh = create_model("mvit_mini", num_classes=3, frames=4, size=32)
        loaded = load_weights(fresh, file, class_names=names)
        assert (loaded.initial == ["classifier.bias", "classifier.weight"]) == is_new
        assert torch.equal(fresh.classifier.weight, model.classifier.weight) != is_new


@pytest.mark.parametrize("trains", [True, False])
def test_a_start_of_other_classes_is_not_tested_as_it_is(tmp_path, trains):
    model = create_model("mvit_mini", num_classes=8, frames=8, size=32)
    wanted = {
        "folder": tmp_path,
        "recipe": recipe_from_dict(RECIPE),
        "lines": [Line("T0_0.5", "uniform")],
        "seeds": [0],
        "is_trained": trains,
    }
    own = save_model(model, tmp_path / "own", class_names=CLASS_NAMES)
    other = save_model(model, tmp_path / "other", class_names=CLASS_NAMES[::-1])
    for file, is_other in ((own, False), (other, True)):
        cells = plan_trials(Comparison(dense=str(file), **wanted))[1]
        refused = {title for (title, _), trial in cells.items() if trial.refusal}
        assert refused == (
            {"dense.start", *([] if trains else ["T0_0.5.uniform"])} if is_other else set()
        )


def test_results_of_other_videos_of_the_same_names_are_not_taken(tmp_path):
    for part in ("train", "val", "test"):
        path = tmp_path / "data" / part / "up" / "0.mp4"
        path.parent.mkdir(parents=True)
        path.write_bytes(b"one")
    data = recipe_from_dict(
        {**RECIPE, "data": {**DATA, "source": "videos", "root": str(tmp_path / "data")}}
    ).data
    for _ in range(2):
        refuse_other_videos(data, tmp_path / "out")
    path.write_bytes(b"another")
    with pytest.raises(ValueError, match=r"out holds results of other videos of the same names"):
        refuse_other_videos(data, tmp_path / "out")


@pytest.mark.parametrize("count", [7, 9])
def test_another_number_of_classes_than_the_videos_have_is_refused(tmp_path, capsys, count):
    recipe = tmp_path / "recipe.yaml"
    recipe.write_text(json.dumps({**RECIPE, "data": {**DATA, "num_classes": count}}))
    with pytest.raises(SystemExit):
        main(["train", str(recipe), "--runs", str(tmp_path / "runs")])
    assert f"data.num_classes is {count}, and the training videos have 8" in capsys.readouterr().err


def test_a_run_goes_on_when_the_weights_that_it_began_from_are_gone(tmp_path):
    model = create_model("mvit_mini", num_classes=8, frames=8, size=32)
    weights = save_model(model, tmp_path / "dense", class_names=CLASS_NAMES)
    brief = {**RECIPE, "schedule": {**SCHEDULE, "epochs": 1}, "runs": str(tmp_path)}
    recipe = recipe_from_dict({**brief, "model": {"weights": str(weights)}})
    train(recipe)
    weights.unlink()
    longer = replace(recipe, schedule=replace(recipe.schedule, epochs=2))
    assert "top1" in train(longer, resume=True)


@pytest.mark.parametrize("command", ["classify", "evaluate", "headroom", "teach"])
def test_the_packaged_model_answers_no_real_video(tmp_path, capsys, command):
    video = tmp_path / "videos" / CLASS_NAMES[0] / "0.mp4"
    video.parent.mkdir(parents=True)
    write_video(video, make_frames(9, 32, 40), fps=10)
    out = tmp_path / "rows.csv"
    folder, model = str(video.parents[1]), str(EMBEDDED)
    words = {
        "classify": [folder, "--checkpoint", model, "--out", str(out)],
        "evaluate": [model, folder],
        "headroom": [model, folder, "--keep", "2"],
        "teach": [model, folder, "--plan", "T0_0.5", "--out", str(tmp_path / "taught")],
    }
    with pytest.raises(SystemExit):
        main([command, *words[command], "--workers", "0"])
    told = out.read_text() if command == "classify" else capsys.readouterr().err
    assert f"{video} is not a synthetic action" in told


def test_a_list_of_videos_may_hold_any_names(tmp_path):
    listed = tmp_path / "list.txt"
    listed.write_bytes("one\u2028two.mp4\r\n\n".encode() + b"\xff.mp4\n")
    assert list_files([str(listed)]) == ["one\u2028two.mp4", os.fsdecode(b"\xff.mp4")]


def test_a_model_that_cannot_be_written_is_named_and_leaves_nothing(tmp_path, monkeypatch):
    def fill_up(tensors, path, metadata):
        path.write_bytes(b"half of it")
        raise SafetensorError("No space left on device")

    monkeypatch.setattr("tokenselect.checkpoints.files.save_file", fill_up)
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


def test_a_journal_that_was_cut_off_keeps_its_rows_on_a_full_disk(tmp_path, monkeypatch):
    journal, row = tmp_path / "rows.csv.part", Row("a.mp4")
    whole = f'{{"settings": {{"m": 1}}}}\n{json.dumps(row.to_dict())}\n'
    journal.write_text(whole + '{"video": "b')

    def fill_up(path, content):
        raise OSError(28, "No space left on device")

    monkeypatch.setattr("pathlib.Path.write_bytes", fill_up)
    assert list(begin_journal(journal, {"m": 1})) == ["a.mp4"]
    assert journal.read_text() == whole


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
    with pytest.raises(ValueError, match=r"half\.safetensors is damaged, or neither"):
        load_model(tmp_path / "half.safetensors")
    assert torch.equal(load_model(file)(clip), before)


@pytest.mark.parametrize("name", [b"\xff\xfe.mp4", "\U0001f600\u2028.mp4".encode(), b"[x].mp4"])
def test_a_command_takes_files_whatever_their_names(tmp_path, bench, capsys, monkeypatch, name):
    monkeypatch.setattr("tokenselect.inference.memory.keep_freed_memory", lambda: None)
    write_video(tmp_path / "a.mp4", make_frames(9, 32, 40), fps=10)
    path = os.path.join(tmp_path, os.fsdecode(name))
    os.rename(tmp_path / "a.mp4", path)
    page, words = tmp_path / "page.html", [path, "--checkpoint", str(bench.checkpoint)]
    monkeypatch.setattr("sys.argv", ["", "predict", *words, "--repeats", "0", "--json"])
    main()
    assert json.loads(capsys.readouterr().out)["videos"][0]["video"] == path
    monkeypatch.setattr("sys.argv", ["", "visualize", *words, "--repeats", "0", "--out", str(page)])
    main()
    assert page.exists()


def test_a_pipe_among_pictures_is_not_waited_for(tmp_path):
    os.mkfifo(tmp_path / "0.png")
    with pytest.raises(VideoError, match=r"has a broken picture, 0\.png: it is no file"):
        open_video(tmp_path).read([0])


@pytest.mark.parametrize(
    ("text", "told"),
    [
        ("path,label,name\na.mp4,1,up\nb.mp4,1,down\n", "label '1' has two names, 'up' and 'down'"),
        ("path,label,name,label\na.mp4,1,up,2\n", "has two columns label"),
    ],
)
def test_a_table_that_says_two_things_is_refused(tmp_path, text, told):
    file = tmp_path / "table.csv"
    file.write_text(text)
    with pytest.raises(ValueError, match=told):
        read_annotations(file, table=TableLayout(names="name"))


def test_a_list_whose_first_line_is_no_row_is_refused_by_name(tmp_path):
    file = tmp_path / "table.tsv"
    file.write_bytes(b"path\rlabel\tsigner\na.mp4\tup\t1\n")
    with pytest.raises(ValueError, match=f"{file}"):
        read_annotations(file)


def test_a_program_that_does_not_fit_the_disk_is_refused_by_name(tmp_path):
    model = create_model("mvit_mini", num_classes=3, frames=4, size=32)
    path, kept = tmp_path / "model.pt2", resource.getrlimit(resource.RLIMIT_FSIZE)
    resource.setrlimit(resource.RLIMIT_FSIZE, (100_000, kept[1]))
    try:
        with pytest.raises(OSError, match=r"model\.pt2 could not be written: File too large"):
            export_model(model, path, "torch")
    finally:
        resource.setrlimit(resource.RLIMIT_FSIZE, kept)
    assert list(tmp_path.iterdir()) == []


def test_two_byte_order_marks_lose_no_label(tmp_path):
    file = tmp_path / "kinetics.csv"
    file.write_text("\ufeff\ufefflabel,youtube_id,time_start,time_end\nrun,abc,1,11\n")
    assert read_annotations(file).class_names == ["run"]
