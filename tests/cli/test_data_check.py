"""`tokenselect data check`: a table or JSON, and an exit code that a script can use."""

import json
from pathlib import Path

import pytest

from tests.data.numbered_frames import numbered_clip
from tokenselect.cli.data import check
from tokenselect.cli.main import main
from tokenselect.data import write_video


@pytest.fixture(name="folder")
def class_folders(tmp_path) -> Path:
    for name in ("run", "walk"):
        (tmp_path / name).mkdir()
        write_video(tmp_path / name / "one.mp4", numbered_clip(9 if name == "run" else 12))
    return tmp_path


def test_a_sound_set_ends_well(folder, capsys):
    check(str(folder), min_frames=8, json=True)
    report = json.loads(capsys.readouterr().out)
    assert (report["videos"], report["classes"], report["details"]) == (2, 2, [])
    assert report["frames"] == {"min": 9, "median": 10.5, "max": 12}
    assert report["sizes"] == {"64×48": 2}


def test_trouble_ends_with_code_1_and_a_table(folder, capsys):
    (folder / "run" / "two.mp4").touch()
    write_video(folder / "stray.mp4", numbered_clip(20))
    with pytest.raises(SystemExit) as exit_:
        check(str(folder), min_frames=10)
    printed = capsys.readouterr().out
    assert exit_.value.code == 1
    for word in ("broken", "too short", "unlabelled", "is empty (0 bytes)", "fewer than 10"):
        assert word in " ".join(printed.split())


def test_json_lists_every_problem(folder, capsys):
    annotations = folder / "list.txt"
    annotations.write_text("run/one.mp4 0\ngone.mp4 1\nrun/one.mp4 0\n")
    with pytest.raises(SystemExit):
        check(str(annotations), min_frames=8, json=True, quick=True)
    details = json.loads(capsys.readouterr().out)["details"]
    assert [problem["kind"] for problem in details] == ["missing", "duplicate"]


def test_the_command_takes_columns_and_rows(folder, capsys):
    (folder / "clips.tsv").write_text("path\tlabel\tpart\nrun/one.mp4\t3\ta\ngone.mp4\t4\tb\n")
    main(["data", "check", str(folder / "clips.tsv"), "--table.where", '{"part": "a"}',
          "--min_frames", "8", "--json"])  # fmt: skip
    assert json.loads(capsys.readouterr().out)["videos"] == 1
