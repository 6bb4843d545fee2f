"""Pretraining on generated video, and the table that shows what it gives."""

import csv
from collections import Counter

import pytest
import torch

from benchmarks import pretrain, pretrained_start
from benchmarks.generated_video import NUM_CLASSES, PARTS, Body, GeneratedVideo
from tokenselect import create_model
from tokenselect.data.annotations import TableLayout
from tokenselect.training.sections import DataRecipe, PartRecipe


@pytest.mark.parametrize("name", ["mvit_mini", "video_swin_mini"])
def test_class_and_places_teach_every_weight(name):
    model = create_model(name, num_classes=NUM_CLASSES + 256, frames=8, size=48)
    drawn = GeneratedVideo(frames=8, size=48, seed=2).draw(2)
    pretrain.loss_of(model, *drawn).backward()
    idle = [name for name, weight in model.named_parameters() if weight.grad is None]
    assert not idle
    assert model.classifier.weight.grad[NUM_CLASSES:].any()


def test_a_token_draws_the_limbs_of_its_own_part_of_the_picture():
    ends = torch.tensor([-0.8, 0.1]).expand(1, 2, PARTS, 2, 2)  # x, y: left, below the middle
    radii = torch.full((1, 2, PARTS), -1.0)
    radii[:, :, 5] = 0.05
    body = Body(ends, radii, torch.zeros(1, PARTS, 3))
    cells = torch.zeros(1, 3 * 3, *pretrain.CELL, requires_grad=True)
    pretrain.loss_of_maps(cells.flatten(2), (1, 3, 3), body).backward()
    row, column = 1, 0  # of the token; within it the limb is in row 2, column 1
    asked = cells.grad[0, :, 0].argmin()  # where the first frame must show more of a limb
    assert torch.unravel_index(asked, cells.shape[1:2] + cells.shape[3:]) == (
        3 * row + column,
        5,
        2,
        1,
    )


def test_a_few_clips_are_of_the_training_part_and_as_many_of_each_class(tmp_path, monkeypatch):
    monkeypatch.setattr(pretrained_start, "RUNS", tmp_path / "runs")
    rows = [[f"{n}.mp4", "ab"[n % 2], "train" if n < 20 else "test"] for n in range(30)]
    with (tmp_path / "clips.tsv").open("w", newline="") as file:
        csv.writer(file, delimiter="\t").writerows([["path", "word", "part"], *rows])
    train = PartRecipe(annotations="clips.tsv", where={"part": "train"})
    data = DataRecipe(
        source="videos", root=str(tmp_path), train=train, table=TableLayout(label="word")
    )
    with pretrained_start.write_few(data, 6).open(newline="") as file:
        few = list(csv.DictReader(file, delimiter="\t"))
    assert Counter(row["word"] for row in few) == {"a": 3, "b": 3}
    assert {row["part"] for row in few} == {"train"}
    assert len({row["path"] for row in few}) == 6
