from dataclasses import replace
from pathlib import Path

import pytest
import torch

from tokenselect.training.build import build_model
from tokenselect.training.recipe import read_recipe

RECIPES = sorted((Path(__file__).parents[2] / "recipes").glob("*.yaml"))
NAMES = [path.stem for path in RECIPES]


@pytest.mark.parametrize("path", RECIPES, ids=NAMES)
def test_a_recipe_names_its_file_and_builds_its_model(path):
    recipe = read_recipe(path)
    assert recipe.name == path.stem
    with torch.device("meta"):
        model = build_model(
            replace(recipe.model, weights=None),
            num_classes=recipe.data.num_classes or 8,
            frames=recipe.data.frames,
            size=recipe.data.size,
        )
    assert hasattr(model, "token_selectors") == (recipe.model.plan != "dense")


@pytest.mark.parametrize("path", RECIPES, ids=NAMES)
def test_a_recipe_opens_with_its_command_and_what_to_expect(path):
    opening = path.read_text().partition("\nname:")[0]
    assert f"tokenselect train recipes/{path.name}" in opening
    assert "# Expect: " in opening
    assert recipe_names_no_machine(path)


def recipe_names_no_machine(path: Path) -> bool:
    recipe = read_recipe(path)
    starts = {f"runs/{name}{part}" for name in NAMES for part in ("", "/last")} | {None}
    return recipe.data.root is None and recipe.model.weights in starts


def test_every_row_of_the_papers_tables_has_a_recipe():
    rows = {"T0_0.9-S4_0.9", "T0_0.8-S4_0.9", "T0_0.6-S4_0.9", "T0_0.5", "T4_0.3", "S0_0.5"}
    rows |= {"S4_0.3", "T0_0.8-S0_0.7", "S0_0.6", "T0_0.6", "T0_0.9-S0_0.9-T4_0.7-S4_0.7"}
    rows |= {"T4_0.6-S4_0.7-T8_0.4-S8_0.7", "T0_0.9-S0_0.9-T4_0.9-S4_0.9-T8_0.7-S8_0.8"}
    expected = {f"k400_mvit_b16_{row}" for row in rows}
    expected |= {"k400_video_swin_b_T0_0.6", "k400_video_swin_b_T0_0.8"}
    expected |= {"ssv2_video_swin_b_T0_0.6", "ssv2_video_swin_b_T0_0.7"}
    assert expected <= set(NAMES)
