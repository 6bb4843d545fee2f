"""The check of a data set: each kind of trouble is found and named, and nothing else."""

from pathlib import Path

import pytest

from tests.data.numbered_frames import numbered_clip
from tokenselect.data import Sample, SampleList, write_video
from tokenselect.data.check import (
    CheckedVideo,
    Problem,
    VideoFacts,
    check_videos,
    count_kinds,
    describe_set,
    find_duplicates,
    find_unknown_classes,
    find_unlisted,
    hash_content,
    note_classes,
)


@pytest.fixture(name="folder")
def written_folder(tmp_path) -> Path:
    for name, num_frames in (("good", 12), ("short", 3)):
        write_video(tmp_path / f"{name}.mp4", numbered_clip(num_frames))
    (tmp_path / "copy.mp4").write_bytes((tmp_path / "good.mp4").read_bytes())
    (tmp_path / "broken.mp4").write_text("not a video")
    return tmp_path


def listed(*labels: int | None, names: str = "abc", folder: Path = Path()) -> SampleList:
    """List videos 0.mp4, 1.mp4 … with these labels."""
    samples = [Sample(str(folder / f"{number}.mp4"), n) for number, n in enumerate(labels)]
    return SampleList(samples, list(names))


def kinds(folder: Path, name: str, label: int | None = 0, **options) -> list[str]:
    found = SampleList([Sample(str(folder / name), label)], ["a"])
    (video,) = check_videos({"all": found}, min_frames=8, workers=1, **options)
    return [problem.kind for problem in video.problems]


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


def test_videos_keep_their_order_and_tell_what_was_read(folder):
    samples = [Sample(str(folder / name), 0) for name in ("short.mp4", "good.mp4")]
    done: list[None] = []
    videos = check_videos(
        {"all": SampleList(samples, ["a"])},
        min_frames=1,
        workers=2,
        on_done=lambda: done.append(None),
    )
    assert [video.facts.num_frames for video in videos] == [3, 12] and len(done) == 2
    assert videos[0].facts.size == (48, 64) and videos[0].facts.fps == pytest.approx(30)


def test_equal_content_is_a_duplicate(folder):
    samples = [
        Sample(str(folder / "good.mp4"), 0),
        Sample(str(folder / "copy.mp4"), 1),
        Sample(str(folder / "good.mp4"), 0),
        Sample(str(folder / "short.mp4"), 0),
    ]
    problems = find_duplicates(check_videos({"all": SampleList(samples, ["a", "b"])}, min_frames=1))
    assert [(Path(p.path).name, p.kind) for p in problems] == [
        ("copy.mp4", "duplicate"),
        ("good.mp4", "duplicate"),
    ]
    assert problems[0].detail.endswith("good.mp4, with another label")
    assert problems[1].detail == "is listed twice"


def test_a_video_of_two_parts_is_told_from_a_duplicate():
    facts = VideoFacts("x")
    videos = [CheckedVideo(Sample(f"{part}.mp4", 0), part, "a", facts) for part in ("train", "val")]
    (problem,) = find_duplicates(videos)
    assert problem == Problem("val.mp4", "in two parts", "equals train.mp4, in train and in val")


def test_unreadable_videos_are_no_duplicates():
    assert (
        find_duplicates([CheckedVideo(Sample(name, 0), "all", "a", VideoFacts()) for name in "ab"])
        == []
    )


def test_parts_of_one_video_are_no_duplicates_and_end_within_it(folder):
    samples = [Sample(str(folder / "good.mp4"), 0, span) for span in ((0, 6), (6, 12), (6, 13))]
    done: list[None] = []
    videos = check_videos(
        {"all": SampleList(samples, ["a"])}, min_frames=6, on_done=lambda: done.append(None)
    )
    assert find_duplicates(videos) == [] and len(done) == 1
    assert [len(video.problems) for video in videos] == [0, 0, 1]
    assert videos[2].problems[0].detail == "has 12 frames, but its part ends at 13"


def test_folders_of_equal_pictures_are_equal(tmp_path):
    for name, content in (("a/1.jpg", b"x"), ("b/1.jpg", b"x"), ("c/1.jpg", b"y")):
        (tmp_path / name).parent.mkdir()
        (tmp_path / name).write_bytes(content)
    a, b, c = (hash_content(str(tmp_path / name)) for name in "abc")
    assert a == b != c


def test_videos_outside_the_list_are_unlabelled(tmp_path):
    problems = find_unlisted([str(tmp_path / "a.mp4"), "b.mp4"], ["b.mp4"])
    assert problems == [Problem(str(tmp_path / "a.mp4"), "unlabelled", "is in no class folder")]


def test_a_class_that_train_lacks_is_a_problem():
    parts = {"train": listed(0, 1), "val": listed(0, 0, names="x")}
    assert find_unknown_classes(parts) == [Problem("x", "unknown class", "2 in val, none in train")]
    assert find_unknown_classes({"all": listed(0)}) == []


def test_classes_without_a_clip_and_with_one_are_noted():
    parts = {"train": listed(0, 0, 1), "val": listed(0, 0, names="ab")}
    assert note_classes(parts) == ["train has a single clip of b", "val has no clip of b, c"]


def test_a_set_is_described_with_its_parts_and_its_cache():
    facts = VideoFacts("x", 10, 25.0, (48, 64))
    video = CheckedVideo(Sample("0.mp4", 0), "train", "a", facts)
    report = describe_set({"train": listed(0, names="ab")}, [video], short_side=24)
    assert report["parts"] == {"train": {"videos": 1, "classes": {"a": 1, "b": 0}}}
    assert report["cache_bytes"] == 10 * 24 * 32 * 3 and report["sizes"] == {"64×48": 1}


def test_all_kinds_are_counted():
    counts = count_kinds([Problem("a", "broken", "")] * 2)
    assert counts["broken"] == 2 and sum(counts.values()) == 2 and len(counts) == 7
