"""The parts of a recipe's videos: found, numbered alike, and refused where they are missing."""

from pathlib import Path

import pytest

from tokenselect.training.build import build_trainer
from tokenselect.training.data import build_train_set, read_part
from tokenselect.training.distributed import Processes
from tokenselect.training.recipe import AugmentationRecipe, DataRecipe, Recipe


def folders(root: Path, **classes: str) -> DataRecipe:
    for part, names in classes.items():
        for name in names:
            (root / part / name).mkdir(parents=True)
            (root / part / name / "1.mp4").touch()
    return DataRecipe(source="videos", root=str(root))


def test_a_class_that_a_part_lacks_shifts_no_label(tmp_path):
    data = folders(tmp_path, train="abc", val="bc", test="c")
    labels = {part: [s.label for s in read_part(data, part).samples] for part in ("val", "test")}
    assert labels == {"val": [1, 2], "test": [2]}
    assert read_part(data, "test").class_names == ["a", "b", "c"]


def test_the_names_of_a_model_come_before_those_of_the_training_videos(tmp_path):
    data = folders(tmp_path, train="abc", test="c")
    found = read_part(data, "test", class_names=["c", "d"])
    assert [sample.label for sample in found.samples] == [0]


def test_a_class_that_training_never_sees_is_an_error(tmp_path):
    data = folders(tmp_path, train="abc", val="abd")
    with pytest.raises(ValueError, match=r"val has the class 'd', not among the 3 .*: a, b, c"):
        read_part(data, "val")


@pytest.mark.parametrize("classes", [{"train": "ab"}, {"a": "x", "b": "y"}])
def test_a_missing_part_is_refused_before_the_first_step(tmp_path, classes):
    recipe = Recipe(name="x", runs=str(tmp_path / "runs"), data=folders(tmp_path / "v", **classes))
    with pytest.raises(ValueError, match=r"names no val videos, and .* data\.val\.annotations, or"):
        build_trainer(recipe, Processes(), is_new=True)
    assert not (tmp_path / "runs").exists()


def test_training_videos_without_a_label_are_refused(tmp_path):
    (tmp_path / "train.txt").write_text("a.mp4 0\nb.mp4 -1\n")
    data = DataRecipe(source="videos", root=str(tmp_path))
    with pytest.raises(ValueError, match=r"1 training videos have no label, such as .*b\.mp4"):
        build_train_set(data, AugmentationRecipe(), seed=0)
