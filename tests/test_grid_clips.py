"""The command that makes the GRID recipes' data, on two sentences of noise."""

import argparse
import csv
import sys
from pathlib import Path

import pytest
import torch

from benchmarks import grid_clips, tables
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


@pytest.mark.parametrize("name", ["grid_words", "grid_mvit_dense", "grid_cut_mvit_dense"])
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
        assert video.shape == (1, 3, recipe.data.frames, 48, 48)
        assert video.mean(dim=2).abs().max() < 1e-5  # centred


@pytest.mark.parametrize(("data", "table"), [("grid", "whole"), ("grid_cut", "cut_digit")])
def test_a_table_of_another_word_reads_that_words_clips(data, table):
    settings = argparse.Namespace(data=data, model="mvit", root="ROOT", word="digit")
    recipe = tables.choose_recipe(settings)
    assert recipe.data.table.label == "digit" and tables.name_data(settings) == f"{data}_digit"
    assert recipe.data.test.annotations == f"{table}.tsv"
    assert recipe.data.test.where == {"part": "test"}
