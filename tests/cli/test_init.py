"""`tokenselect init`: the commands that it prints work on the folder, word for word."""

import csv
import json
import os
import re
import shlex
from pathlib import Path

import pytest
import torch

from tokenselect.cli.main import main
from tokenselect.data import write_video
from tokenselect.training.data import read_part
from tokenselect.training.recipe import read_recipe

UCF101 = [f"{c}/v_{c}_g{g:02d}_c{n:02d}.avi" for c in ("Archery", "Diving") for g in range(1, 7)
          for n in (1, 2)]  # fmt: skip
CLASSES = [f"{c}/{n}.mp4" for c in ("run", "sit down", "walk") for n in range(5)]
PARTS = [f"{part}/{c}/{n}.mp4" for part in ("train", "val", "test") for c in "ab" for n in range(3)]


def write_folder(root: Path, names: list[str]) -> Path:
    """Write videos that all differ; they are 20 frames of 40 × 32."""
    for number, name in enumerate(names):
        path = root / name
        path.parent.mkdir(parents=True, exist_ok=True)
        frames = torch.randint(256, (20, 3, 2, 2), generator=torch.Generator().manual_seed(number))
        frames = frames.byte().repeat_interleave(16, 2).repeat_interleave(20, 3)
        write_video(path, frames, fps=10, codec="mpeg4" if name.endswith("avi") else "libx264")
    return root


def printed_commands(text: str) -> list[list[str]]:
    return [shlex.split(line) for line in re.findall(r"^ +tokenselect (.+)$", text, re.MULTILINE)]


@pytest.fixture(autouse=True)
def in_an_empty_folder(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)


@pytest.mark.slow
@pytest.mark.parametrize(
    "names", [CLASSES, UCF101, PARTS], ids=["class folders", "groups", "part folders"]
)
def test_the_commands_that_it_prints_work_word_for_word(names, capsys):
    write_folder(Path("my_videos"), names)
    main(["init", "my_videos/", "--epochs", "1"])
    commands = printed_commands(capsys.readouterr().out)
    assert [command[0] for command in commands] == ["data", "train", "evaluate", "predict"]
    for command in commands:
        main(command)
    assert Path("runs/my_videos/best").exists()
    last = (
        sorted(Path("my_videos.csv").read_text().splitlines()[1:])[-1] if names != PARTS else ",b,"
    )
    write_folder(Path("others"), [f"{last.split(',')[1]}/1.mp4"])
    main(["evaluate", "runs/my_videos", "others", "--output", "others.json"])
    tested = json.loads(Path("others.json").read_text())
    assert [sum(row) for row in tested["confusion"]][-1] == tested["num_videos"] == 1
    main([*commands[2], "--plan", "T0_0.5", "--method", "uniform"])
    assert "plan T0_0.5" in capsys.readouterr().out


def test_a_split_by_group_keeps_groups_together(capsys):
    write_folder(Path("my_videos"), UCF101)
    main(["init", "my_videos"])
    assert "each group of clips (person, recording) is in one part only" in capsys.readouterr().out
    with open("my_videos.csv", newline="") as file:
        rows = list(csv.DictReader(file))
    assert {row["part"] for row in rows} == {"train", "val", "test"} and len(rows) == len(UCF101)
    of_group: dict[str, set[str]] = {}
    for row in rows:
        of_group.setdefault(row["path"].split("_")[2], set()).add(row["part"])
    assert all(len(parts) == 1 for parts in of_group.values())


def test_parts_that_are_there_are_used_as_they_are():
    write_folder(Path("my_videos"), PARTS)
    main(["init", "my_videos"])
    data = read_recipe("my_videos.yaml").data
    assert [getattr(data, part).annotations for part in ("train", "val", "test")] == [
        "train", "val", "test"
    ]  # fmt: skip
    assert not Path("my_videos.csv").exists()


def test_a_part_that_is_missing_is_taken_from_the_training_videos():
    write_folder(Path("my_videos"), [name for name in PARTS if not name.startswith("val")])
    main(["init", "my_videos"])
    data = read_recipe("my_videos.yaml").data
    paths = {
        part: {s.path for s in read_part(data, part).samples} for part in ("train", "val", "test")
    }
    assert [len(found) for found in paths.values()] == [4, 2, 6]
    assert all("/test/" in os.path.normpath(path) for path in paths["test"])


def test_annotation_files_are_parts():
    write_folder(Path("my_videos"), CLASSES)
    Path("my_videos/train.csv").write_text(
        "path,label\n" + "".join(f"{n},{n[0]}\n" for n in CLASSES)
    )
    Path("my_videos/test.csv").write_text("path,label\nrun/1.mp4,r\n")
    main(["init", "my_videos"])
    data = read_recipe("my_videos.yaml").data
    found = read_part(data, "test")
    assert found.class_names == ["r", "s", "w"]
    assert [(os.path.normpath(s.path), s.label) for s in found.samples] == [
        ("my_videos/run/1.mp4", 0)
    ]


def list_videos_in(folder: Path, header: str, *columns: list[str]) -> None:
    rows = [header.split(","), *zip(*columns, strict=True)]
    with (folder / "labels.csv").open("w", newline="") as file:
        csv.writer(file).writerows(rows)


@pytest.mark.parametrize("named", ["videos", "videos/labels.csv"])
def test_a_list_beside_the_videos_says_their_classes(named, capsys):
    names = [f"{number}.mp4" for number in range(12)]
    list_videos_in(write_folder(Path("videos"), names), "video,label", names, ["a", "b", "c"] * 4)
    main(["init", named, "--out", "recipe.yaml"])
    assert "12 videos of 3 classes" in capsys.readouterr().out
    assert read_part(read_recipe(Path("recipe.yaml")).data, "train").class_names == ["a", "b", "c"]


def test_a_list_of_videos_that_are_elsewhere_is_refused(capsys):
    Path("labels.csv").write_text("video,label\na.mp4,run\nb.mp4,walk\n")
    with pytest.raises(SystemExit):
        main(["init", "labels.csv"])
    assert "none of the 2 videos that labels.csv lists" in capsys.readouterr().err


def test_a_column_of_the_list_says_the_part_of_each_video(capsys):
    names = [f"{number}.mp4" for number in range(6)]
    splits = ["train", "train", "Validation", "TEST", "test", "test"]
    folder = write_folder(Path("videos"), names)
    list_videos_in(folder, "file,class,split", names, ["a", "b"] * 3, splits)
    main(["init", "videos", "--out", "recipe.yaml"])
    assert "2 train, 1 val, 3 test" in capsys.readouterr().out
    list_videos_in(folder, "file,class,split", names, ["a", "b"] * 3, [*splits[:5], "spare"])
    with pytest.raises(SystemExit):
        main(["init", "videos", "--out", "other.yaml"])
    assert "split must say train, val or test, got 'spare'" in capsys.readouterr().err


def test_the_list_is_found_from_elsewhere_and_through_a_link(tmp_path):
    write_folder(tmp_path / "deep" / "store", CLASSES)
    (tmp_path / "link").symlink_to(tmp_path / "deep" / "store", target_is_directory=True)
    (tmp_path / "recipes").mkdir()
    main(["init", "link", "--out", "recipes/mine.yaml"])
    data = read_recipe("recipes/mine.yaml").data
    assert sum(len(read_part(data, part)) for part in ("train", "val", "test")) == len(CLASSES)
    assert all(Path(sample.path).exists() for sample in read_part(data, "val").samples)


def test_nothing_is_written_over(capsys):
    write_folder(Path("my_videos"), CLASSES)
    Path("my_videos.csv").write_text("mine")
    with pytest.raises(SystemExit):
        main(["init", "my_videos"])
    assert "my_videos.csv already exists: give --force" in capsys.readouterr().err
    assert Path("my_videos.csv").read_text() == "mine" and not Path("my_videos.yaml").exists()
    main(["init", "my_videos", "--force"])
    assert Path("my_videos.yaml").exists()


@pytest.mark.parametrize(
    ("names", "message"),
    [([], "holds no labelled videos"), (["a.mp4"], "holds no labelled videos"),
     (["test/a/1.mp4"], "has test, but no videos to train on")],
)  # fmt: skip
def test_what_cannot_be_trained_on_is_said(names, message, capsys):
    Path("my_videos").mkdir()
    write_folder(Path("my_videos"), names)
    with pytest.raises(SystemExit):
        main(["init", "my_videos"])
    assert message in capsys.readouterr().err


def test_a_class_that_only_a_test_has_is_named(capsys):
    write_folder(Path("my_videos"), [*PARTS, "test/c/1.mp4"])
    with pytest.raises(SystemExit):
        main(["init", "my_videos"])
    assert "has the class 'c', not among the 2 class names: a, b" in capsys.readouterr().err


def test_the_check_of_a_recipe_reads_its_parts(capsys):
    write_folder(Path("my_videos"), [*PARTS, "val/a/9.mp4"])
    Path("my_videos/val/a/9.mp4").write_bytes(Path("my_videos/train/a/1.mp4").read_bytes())
    main(["init", "my_videos"])
    capsys.readouterr()
    with pytest.raises(SystemExit) as ended:
        main(["data", "check", "my_videos.yaml", "--json"])
    printed = capsys.readouterr().out
    assert ended.value.code == 1 and '"in two parts": 1' in printed
    assert '"cache_short_side": 80' in printed
