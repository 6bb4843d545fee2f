"""The command that makes the GRID recipes' data, on two sentences of noise."""

import argparse
import csv
import random
import sys
from pathlib import Path

import pytest
import torch

from benchmarks import grid_clips, grid_dense, lips_regions, tables
from tokenselect.data import write_video
from tokenselect.training.data import build_test_set, build_train_set
from tokenselect.training.recipe import read_recipe

RECIPES = Path(__file__).parents[1] / "recipes"
SAID = {"verb": "bin", "colour": "blue", "preposition": "at", "letter": "f", "digit": "two"}
TIMES = {"verb": 9.5, "colour": 17, "preposition": 22, "letter": 25, "digit": 29.25, "adverb": 35}


@pytest.fixture(scope="module")
def made(tmp_path_factory) -> Path:
    root, out = tmp_path_factory.mktemp("corpus"), tmp_path_factory.mktemp("clips")
    (root / "clips").mkdir()
    rows = []
    for name, part, adverb in (("a", "train", "now"), ("b", "val", "soon"), ("c", "test", "now")):
        frames = torch.randint(0, 256, (75, 3, 120, 160), dtype=torch.uint8)
        write_video(root / "clips" / f"{name}.mp4", frames, options={"preset": "ultrafast"})
        row = {"path": f"clips/{name}.mp4", "part": part, **SAID, "adverb": adverb}
        for word, start in TIMES.items():
            row |= {f"{word}_start": start, f"{word}_end": start + 5.5}
        rows.append(row)
    grid_clips.write_table(root / "clips.tsv", rows)
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(sys, "argv", ["grid_clips", str(root), str(out)])
        grid_clips.main()
    return out


def read(path: Path) -> list[dict[str, str]]:
    with path.open() as file:
        return list(csv.DictReader(file, delimiter="\t"))


def test_every_window_holds_its_word(made):
    rows = read(made / "cut_adverb.tsv")
    assert [row["part"] for row in rows] == ["train"] * 4 + ["val", "test"]
    for row in rows:
        assert int(row["start"]) <= 35 and int(row["stop"]) >= 40
        assert int(row["stop"]) - int(row["start"]) == grid_clips.WINDOW
    assert len({row["start"] for row in rows}) > 1


@pytest.mark.parametrize(("name", "left_out"), [("front", "adverb"), ("back", "verb")])
def test_the_words_to_pretrain_on_are_four_of_six(made, name, left_out):
    words = {row["word"].split()[0] for row in read(made / f"words_{name}.tsv")}
    assert left_out not in words and len(words) == 4


DENSE = ["grid_mvit_dense", "grid_cut_mvit_dense", "grid_faces_mvit_dense"]


@pytest.mark.parametrize("name", ["grid_words", *DENSE, "grid_faces_cut_mvit_dense"])
def test_the_recipes_read_what_was_made(made, name, tmp_path):
    recipe = read_recipe(
        RECIPES / f"{name}.yaml", ["--data.root", str(made), "--data.cache", str(tmp_path)]
    )
    train = build_train_set(recipe.data, recipe.augmentation, seed=0)
    test = build_test_set(recipe.data, "test")
    if name != "grid_words":
        assert list(train.class_names) == ["now", "soon"]
    for clips in (train, test):
        video = clips.dataset[0].video
        side = 80 if "faces" in name else 48
        assert video.shape == (1, 3, recipe.data.frames, side, side)
        assert video.mean(dim=2).abs().max() < 1e-5  # centred


@pytest.mark.parametrize(
    ("data", "table"),
    [("grid", "whole"), ("grid_cut", "cut_digit"), ("grid_faces", "trimmed_digit")],
)
def test_a_table_of_another_word_reads_that_words_clips(data, table):
    settings = argparse.Namespace(data=data, model="mvit", root="ROOT", word="digit")
    recipe = tables.choose_recipe(settings)
    assert recipe.data.table.label == "digit" and tables.name_data(settings) == f"{data}_digit"
    assert recipe.data.test.annotations == f"{table}.tsv"
    assert recipe.data.test.where == {"part": "test"}


def test_all_lines_of_a_word_that_is_hard_to_learn_learn_longer():
    settings = {"data": "grid_faces_cut", "model": "mvit", "root": "ROOT"}
    read = [tables.choose_recipe(argparse.Namespace(**settings, word=w)) for w in ("verb", "digit")]
    assert [recipe.schedule.epochs for recipe in read] == [6, 12]


def test_a_face_holds_the_lips_anywhere():
    top, left, height, width = grid_clips.LIPS
    boxes = [grid_clips.draw_face(random.Random(seed)) for seed in range(500)]
    for row, column, side, other in boxes:
        assert side == other == grid_clips.FACE
        assert row <= top and top + height <= row + side
        assert column <= left and left + width <= column + side
    above, before = {top - box[0] for box in boxes}, {left - box[1] for box in boxes}
    assert (min(above), max(above)) == (0, grid_clips.FACE - height)
    assert (min(before), max(before)) == (0, grid_clips.FACE - width)


def test_a_box_that_leaves_the_picture_repeats_its_edge():
    frames = torch.arange(2 * 3 * 4).reshape(2, 1, 3, 4)
    inside = grid_clips.crop_past_edges(frames, (1, 1, 2, 3))
    assert torch.equal(inside, frames[:, :, 1:, 1:])
    beyond = grid_clips.crop_past_edges(frames, (-1, 3, 3, 3))
    first, second = frames[:, :, 0, 3], frames[:, :, 1, 3]  # of the last column
    rows = torch.stack([first, first, second], dim=-1)
    assert torch.equal(beyond, rows[..., None].expand(-1, -1, -1, 3))


def test_the_lips_are_where_the_face_was_cut():
    row, column, *_ = grid_clips.draw_face(random.Random("clips/a.mp4"))
    top, left, height, width = grid_clips.LIPS
    (box,) = lips_regions.find_lips(["a.mp4"])  # (2 corners, 2), in tokens
    pixels = box * grid_clips.FACE / lips_regions.GRID
    assert pixels[0].tolist() == pytest.approx([top - row, left - column])
    assert (pixels[1] - pixels[0]).tolist() == pytest.approx([height, width])


@pytest.mark.parametrize(
    ("corner", "share"), [((2, 2), 1.0), ((6, 2), 0.5), ((6, 6), 0.25), ((12, 12), 0.0)]
)
def test_a_region_shows_a_share_of_the_lips(corner, share):
    box = torch.tensor([[4.0, 4.0], [8.0, 8.0]])
    assert lips_regions.cover(torch.tensor(corner), box).item() == share


def test_dense_models_start_from_trimmed_words_and_faces_from_mouths(monkeypatch):
    trained = []

    def run(recipe, name, root, *options, table):
        start = options[options.index("--model.weights") + 1] if options else None
        trained.append((name, root, start, table))
        return f"runs/{name}"

    monkeypatch.setattr(grid_dense, "run", run)
    words = ["grid_dense", "ROOT", "--faces", "FACES", "--data", "grid_faces_cut"]
    monkeypatch.setattr(sys, "argv", [*words, "--words", "digit"])
    grid_dense.main()
    back, faces = "runs/grid_words_back/last", "runs/grid_faces_words_back/last"
    known = "runs/grid_faces_digit_mvit_dense/last"
    assert trained == [
        ("grid_words_front", "ROOT", None, "words_front.tsv"),
        ("grid_words_back", "ROOT", "runs/grid_words_front/last", "words_back.tsv"),
        ("grid_faces_words_back", "FACES", back, "words_back.tsv"),
        ("grid_faces_digit_mvit_dense", "FACES", faces, "trimmed_digit.tsv"),
        ("grid_faces_cut_digit_mvit_dense", "FACES", known, "cut_digit.tsv"),
    ]


def test_colours_and_digits_of_whole_sentences_are_learnt_from_cut_ones_first():
    for word in ("colour", "digit"):
        assert [*grid_dense.steps_to("grid", word)] == ["grid_trimmed", "grid_cut", "grid"]
    assert [*grid_dense.steps_to("grid", "verb")] == ["grid_trimmed", "grid"]
    assert [*grid_dense.steps_to("grid", "adverb")] == ["grid"]
