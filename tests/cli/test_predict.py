import json

import pytest
import torch
from rich.console import Console

from tokenselect.checkpoints.files import EMBEDDED
from tokenselect.cli import options
from tokenselect.cli.main import main
from tokenselect.cli.options import ModelOptions, spell_words
from tokenselect.cli.predict import predict, print_list
from tokenselect.data import write_video
from tokenselect.data.sources import FoundVideo
from tokenselect.data.synthetic import SyntheticActions
from tokenselect.inference.predict import Answer, Moment, Timeline


@pytest.mark.slow
def test_json_has_the_promised_keys(capsys):
    main(["predict", "sample:1", "sample:2", "--top", "2", "--repeats", "0", "--json"])
    told = json.loads(capsys.readouterr().out)
    assert {"model", "plan", "views", "device", "notes", "cost_of_a_view", "videos"} <= set(told)
    assert [video["truth"] for video in told["videos"]] == ["right-up", "left-down"]
    assert len(told["videos"][0]["top"]) == 2 and len(told["videos"][0]["timeline"]) == 1
    cost = told["cost_of_a_view"]
    assert 0 < cost["gmacs"] < cost["gmacs_dense"] and cost["milliseconds"] is None


@pytest.mark.slow
def test_tables_say_label_probability_and_cost(capsys):
    main(["predict", "sample", "--repeats", "1", "--plan", "T0=4", "--method", "uniform"])
    printed = capsys.readouterr().out
    assert "sample:0 (shows right-down)" in printed and "probability" in printed
    assert "T0=4" in printed and "GMACs" in printed and "ms" in printed


@pytest.mark.slow
def test_a_dense_model_has_one_column(capsys):
    main(["predict", "sample", "--repeats", "0", "--plan", "dense"])
    assert "saved" not in capsys.readouterr().out


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (["nowhere.mp4"], "nowhere.mp4 does not exist"),
        (["sample", "--views", "5"], 'views must be like "5x1"'),
        (["sample", "--top", "0"], "top must be at least 1"),
        (["sample", "--checkpoint", "nowhere"], "no checkpoint at nowhere"),
        (["sample", "--method", "magic"], "method must be one of"),
    ],
)
def test_wrong_values_end_with_one_line(arguments, message, capsys):
    with pytest.raises(SystemExit) as exit_:
        main(["predict", *arguments])
    assert exit_.value.code == 2
    error = capsys.readouterr().err.strip().splitlines()[-1]
    assert error.startswith("tokenselect: ") and message in error


@pytest.mark.slow
def test_a_broken_file_among_others_is_reported_at_the_end(tmp_path, capsys):
    broken = tmp_path / "broken.mp4"
    broken.write_bytes(b"nothing")
    with pytest.raises(SystemExit) as exit_:
        main(["predict", str(broken), "sample", "--repeats", "0", "--json"])
    assert exit_.value.code == 1
    first, second = json.loads(capsys.readouterr().out)["videos"]
    assert "cannot be decoded" in first["error"] and "top" in second


def test_words_may_stand_between_options():
    words = ["a.mp4", "--top", "3", "b.mp4", "--json=true", "c.mp4"]
    joined = ['["a.mp4", "b.mp4", "c.mp4"]', "--top", "3", "--json=true"]
    assert spell_words(predict, words) == joined
    assert spell_words(predict, ["--help"]) == ["--help"]


def test_without_a_model_public_weights_answer_and_their_download_is_told(
    monkeypatch, tmp_path, capsys
):
    monkeypatch.setenv("TORCH_HOME", str(tmp_path))
    given = {}
    monkeypatch.setattr(options, "fetch_public", lambda file: file.path)
    monkeypatch.setattr(
        options, "load_model", lambda source, **others: given.update(others, source=source)
    )
    ModelOptions().load(["clip.mp4"])
    assert (given["source"], given["weights"]) == ("video_swin_t", "kinetics400")
    assert (given["plan"], given["method"]) == ("T0_0.6", "uniform")
    told = capsys.readouterr().err
    assert "torchvision (122 MB): https://download.pytorch.org" in told and str(tmp_path) in told
    ModelOptions().load(["sample:3"])
    assert given["source"] is None and given["weights"] is None
    ModelOptions(plan="T0=4").load(["clip.mp4"])
    assert given["plan"] == "T0=4"


def test_without_a_model_and_without_weights_one_sentence_says_what_to_do(
    monkeypatch, tmp_path, capsys
):
    def fail(*arguments):
        raise OSError("no route to host")

    monkeypatch.setenv("TORCH_HOME", str(tmp_path))
    monkeypatch.setattr(torch.hub, "download_url_to_file", fail)
    write_video(tmp_path / "clip.mp4", torch.zeros(4, 3, 32, 32, dtype=torch.uint8), fps=8)
    with pytest.raises(SystemExit) as exit_:
        main(["predict", str(tmp_path / "clip.mp4")])
    assert exit_.value.code == 2
    last = capsys.readouterr().err.strip().splitlines()[-1]
    assert "no model was given" in last and "no route to host" in last
    assert "swin3d_t-7615ae03.pth" in last and "--checkpoint" in last


def test_the_model_of_the_package_refuses_what_it_cannot_know(tmp_path, capsys):
    film = torch.randint(256, (16, 3, 64, 64), dtype=torch.uint8)
    write_video(tmp_path / "clip.mp4", film, fps=8)
    with pytest.raises(SystemExit) as exit_:
        main(["predict", str(tmp_path / "clip.mp4"), "--checkpoint", str(EMBEDDED)])
    assert exit_.value.code == 2
    assert "is not a synthetic action" in capsys.readouterr().err


def test_a_whole_video_is_one_clip_of_which_as_many_frames_stay(tmp_path, capsys):
    clips = SyntheticActions(8, frames=16, size=64, split="test")
    long = torch.cat([clips.video(i) for i in (0, 1, 2, 3)])
    write_video(tmp_path / "long.mp4", long, fps=8)
    asked = ["predict", str(tmp_path / "long.mp4"), "--checkpoint", str(EMBEDDED), "--whole"]
    main([*asked, "--window", "2", "--step", "2", "--repeats", "0", "--json"])
    told = json.loads(capsys.readouterr().out)
    (video,) = told["videos"]
    whole, windows = video["as_one_clip"], video["timeline"]
    assert whole["frames"] == 4 * told["frames"] and len(windows) == 4
    assert whole["plan"].startswith("T0_") and whole["plan"] != told["plan"]
    one = told["cost_of_a_view"]["gmacs"]
    assert one < whole["gmacs"] < len(windows) * one
    main([*asked, "--window", "2", "--repeats", "0"])
    assert "one clip of 64" in capsys.readouterr().out
    with pytest.raises(SystemExit):
        main([*asked, "--plan", "dense"])
    assert "needs a plan that drops frames" in capsys.readouterr().err


def test_many_videos_show_what_was_asked_for_and_whole_names(capsys):
    name = "a_very_long_folder/" * 4 + "clip"
    moments = [Moment(5.0 * n, 5.0 * n + 5, torch.eye(3)[n]) for n in range(2)]
    answers = [
        Answer(FoundVideo(f"{name}-{n}.mp4", open=None), Timeline(moments, 10.0)) for n in range(4)
    ]
    print_list(Console(width=80), {0: "jump", 1: "run", 2: "sit"}, answers, top=2)
    printed = capsys.readouterr().out
    assert "…" not in printed and printed.count("run") == 8 and printed.count("jump") == 8
    assert "0:00.0–0:05.0" in printed and "0:05.0–0:10.0" in printed
