"""The check of a data set: each kind of trouble is found and named, and nothing else."""

from pathlib import Path

import pytest

from tests.data.numbered_frames import numbered_clip
from tokenselect.data import Sample, write_video
from tokenselect.data.check import (
    Problem,
    Reading,
    count_kinds,
    find_duplicates,
    find_unlisted,
    fingerprint,
    read_samples,
)


@pytest.fixture(name="folder")
def written_folder(tmp_path) -> Path:
    for name, num_frames in (("good", 12), ("short", 3)):
        write_video(tmp_path / f"{name}.mp4", numbered_clip(num_frames))
    (tmp_path / "copy.mp4").write_bytes((tmp_path / "good.mp4").read_bytes())
    (tmp_path / "broken.mp4").write_text("not a video")
    return tmp_path


def kinds(folder: Path, name: str, label: int | None = 0, **options) -> list[str]:
    sample = Sample(str(folder / name), label)
    (reading,) = read_samples([sample], min_frames=8, workers=1, **options)
    return [problem.kind for problem in reading.problems]


@pytest.mark.parametrize("decodes_all", [True, False])
@pytest.mark.parametrize(
    ("name", "expected"),
    [("good.mp4", []), ("short.mp4", ["too short"]), ("broken.mp4", ["broken"]),
     ("gone.mp4", ["missing"])],
)  # fmt: skip
def test_each_trouble_has_its_kind(folder, name, expected, decodes_all):
    assert kinds(folder, name, decodes_all=decodes_all) == expected


def test_a_video_without_a_label(folder):
    assert kinds(folder, "good.mp4", label=None) == ["unlabelled"]


def test_damage_in_the_middle_needs_all_frames(folder):
    path = folder / "good.mp4"
    content = bytearray(path.read_bytes())
    middle = content.index(b"mdat") + (len(content) - content.index(b"mdat")) // 3
    content[middle : middle + 60] = bytes(60)
    path.write_bytes(content)
    assert kinds(folder, "good.mp4") == ["broken"]


def test_readings_keep_the_order_and_tell_what_was_read(folder):
    samples = [Sample(str(folder / name), 0) for name in ("short.mp4", "good.mp4")]
    done: list[None] = []
    readings = read_samples(samples, min_frames=1, workers=2, on_done=lambda: done.append(None))
    assert [reading.num_frames for reading in readings] == [3, 12] and len(done) == 2
    assert readings[0].size == (48, 64) and readings[0].fps == pytest.approx(30)


def test_equal_content_is_a_duplicate(folder):
    samples = [
        Sample(str(folder / "good.mp4"), 0),
        Sample(str(folder / "copy.mp4"), 1),
        Sample(str(folder / "good.mp4"), 0),
        Sample(str(folder / "short.mp4"), 0),
    ]
    problems = find_duplicates(read_samples(samples, min_frames=1))
    assert [(Path(p.path).name, p.kind) for p in problems] == [
        ("copy.mp4", "duplicate"),
        ("good.mp4", "duplicate"),
    ]
    assert problems[0].detail.endswith("good.mp4, with another label")
    assert problems[1].detail == "is listed twice"


def test_unreadable_videos_are_no_duplicates():
    assert find_duplicates([Reading(Sample(name, 0), ()) for name in "ab"]) == []


def test_folders_of_equal_pictures_are_equal(tmp_path):
    for name, content in (("a/1.jpg", b"x"), ("b/1.jpg", b"x"), ("c/1.jpg", b"y")):
        (tmp_path / name).parent.mkdir()
        (tmp_path / name).write_bytes(content)
    a, b, c = (fingerprint(str(tmp_path / name)) for name in "abc")
    assert a == b != c


def test_videos_outside_the_list_are_unlabelled(tmp_path):
    problems = find_unlisted([str(tmp_path / "a.mp4"), "b.mp4"], [Sample("b.mp4", 0)])
    assert problems == [Problem(str(tmp_path / "a.mp4"), "unlabelled", "is in no class folder")]


def test_all_kinds_are_counted():
    assert count_kinds([Problem("a", "broken", "")] * 2) == {
        "missing": 0, "broken": 2, "too short": 0, "duplicate": 0, "unlabelled": 0
    }  # fmt: skip
