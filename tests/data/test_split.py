"""The parts of a data set: found by their names, or proposed so that no group is in two."""

from collections import Counter
from pathlib import Path

import pytest

from tokenselect.data import Sample, find_parts, propose_split
from tokenselect.data.split import UNDIVIDED, find_groups, part_of


def touch(root: Path, *names: str) -> Path:
    for name in names:
        (root / name).parent.mkdir(parents=True, exist_ok=True)
        (root / name).touch()
    return root


def shares(parts: list[str]) -> dict[str, float]:
    return {part: count / len(parts) for part, count in Counter(parts).items()}


@pytest.mark.parametrize(
    ("names", "expected"),
    [
        (["train/a/1.mp4", "val/a/1.mp4", "test/a/1.mp4"],
         {"train": "train", "val": "val", "test": "test"}),
        (["Training/a/1.mp4", "validation/a/1.mp4"], {"train": "Training", "val": "validation"}),
        (["train/a/1.mp4", "test/a/1.mp4", "notes/read.me"], {"train": "train", "test": "test"}),
        (["run/1.mp4", "walk/1.mp4"], {UNDIVIDED: "."}),
        (["train/1.mp4", "bus/1.mp4"], {UNDIVIDED: "."}),
        (["a/1.mp4", "train.csv", "valid.csv", "labels.json"],
         {"train": "train.csv", "val": "valid.csv"}),
        (["a/1.mp4", "trainlist01.txt", "trainlist02.txt", "testlist01.txt", "classInd.txt"],
         {"train": "trainlist01.txt", "test": "testlist01.txt"}),
        (["train/1.mp4", "val/2.mp4", "k400_train.csv", "k400_val.csv"],
         {"train": "k400_train.csv", "val": "k400_val.csv"}),
    ],
)  # fmt: skip
def test_parts_are_found_by_their_names(tmp_path, names, expected):
    found = find_parts(touch(tmp_path, *names))
    assert found == {part: tmp_path / name for part, name in expected.items()}


def test_a_file_is_the_whole_set_and_a_missing_folder_is_named(tmp_path):
    path = touch(tmp_path, "train.csv") / "train.csv"
    assert find_parts(path) == {UNDIVIDED: path}
    with pytest.raises(FileNotFoundError, match="nowhere does not exist"):
        find_parts(tmp_path / "nowhere")


def test_a_folder_is_a_part_by_its_whole_name_only():
    assert [part_of(name) for name in ("Val", "test", "train driver", "latest", "test.csv")] == [
        "val", "test", None, None, "test"
    ]  # fmt: skip


def test_each_class_is_divided_where_names_show_no_group():
    samples = [Sample(f"{label}/{n}.mp4", label) for label in range(3) for n in range(20 + label)]
    parts, by = propose_split(samples)
    assert by == "class"
    for label in range(3):
        own = [part for part, sample in zip(parts, samples, strict=True) if sample.label == label]
        assert Counter(own) == {"train": 14 + label, "val": 3, "test": 3}
    assert propose_split(samples) == (parts, by)


@pytest.mark.parametrize(
    ("count", "expected"),
    [(1, ["train"]), (2, ["test", "train"]), (3, ["test", "train", "val"])],
)
def test_a_small_class_keeps_a_clip_to_train_on(count, expected):
    samples = [Sample(f"{n}.mp4", 0) for n in range(count)]
    assert sorted(propose_split(samples)[0]) == expected


@pytest.mark.parametrize(
    "pattern",
    ["C{c}/v_C{c}_g{g:02d}_c{n:02d}.avi", "C{c}/signer{g}_{n}.mp4", "C{c}/Subject-{g}/{n}.mp4"],
)
def test_groups_stay_together(pattern):
    samples = [
        Sample(pattern.format(c=c, g=g, n=n), c)
        for c in range(4)
        for g in range(1, 9)
        for n in range(1 + g % 3)
    ]
    parts, by = propose_split(samples)
    groups = find_groups(samples)
    assert by == "group" and groups is not None
    part_of_group: dict[str, set[str]] = {}
    for group, part in zip(groups, parts, strict=True):
        part_of_group.setdefault(group, set()).add(part)
    assert all(len(found) == 1 for found in part_of_group.values())
    assert 0.1 < shares(parts)["test"] < 0.3 and 0.1 < shares(parts)["val"] < 0.3
    for part in ("train", "val", "test"):
        own = {s.label for s, p in zip(samples, parts, strict=True) if p == part}
        assert own == {0, 1, 2, 3}


def test_groups_of_one_class_each_are_divided_class_by_class():
    samples = [
        Sample(f"{c}/person{10 * c + g}_{n}.mp4", c)
        for c in range(3)
        for g in range(7)
        for n in "ab"
    ]
    parts, by = propose_split(samples)
    assert by == "group"
    for label in range(3):
        own = [part for part, sample in zip(parts, samples, strict=True) if sample.label == label]
        assert Counter(own) == {"train": 10, "val": 2, "test": 2}


def test_a_class_called_person_is_no_group():
    samples = [Sample(f"person{c}/{n}.mp4", c) for c in range(3) for n in range(9)]
    assert propose_split(samples)[1] == "class"


def test_only_the_parts_that_are_missing_are_taken():
    samples = [Sample(f"{n}.mp4", 0) for n in range(20)]
    assert Counter(propose_split(samples, parts=("val",))[0]) == {"train": 17, "val": 3}
