import json
import re
from dataclasses import replace
from pathlib import Path

import pytest
import torch

from tokenselect.models import GENERATED
from tokenselect.training.build import build_model
from tokenselect.training.recipe import Recipe, read_recipe, recipe_from_dict

RECIPES = sorted((Path(__file__).parents[2] / "recipes").glob("*.yaml"))
NAMES = [path.stem for path in RECIPES]


def plans_of(path: Path) -> list[str]:
    """List the plans of the table in a recipe's opening."""
    return re.findall(r"^#   ([TS]\d\S+) ", path.read_text(), flags=re.MULTILINE)


def build_on_paper(recipe: Recipe) -> torch.nn.Module:
    with torch.device("meta"):
        built, _ = build_model(
            replace(recipe.model, weights=None),
            class_names=[str(n) for n in range(recipe.data.num_classes or 8)],
            frames=recipe.data.frames,
            size=recipe.data.size,
        )
    return built


@pytest.mark.parametrize("path", RECIPES, ids=NAMES)
def test_a_recipe_names_its_file_and_builds_its_model(path):
    for plan in plans_of(path) or [read_recipe(path).model.plan]:
        recipe = read_recipe(path, ["--model.plan", plan])
        assert recipe.name == (f"{path.stem}_{plan}" if plans_of(path) else path.stem)
        assert hasattr(build_on_paper(recipe), "token_selectors") == (plan != "dense")


@pytest.mark.parametrize("path", RECIPES, ids=NAMES)
def test_a_recipe_opens_with_its_command_and_what_to_expect(path):
    opening = re.split(r"^(?:name|base):", path.read_text(), maxsplit=1, flags=re.MULTILINE)[0]
    assert f"tokenselect train recipes/{path.name}" in opening
    assert "# Expect: " in opening
    assert recipe_names_no_machine(path)


def recipe_names_no_machine(path: Path) -> bool:
    recipe = read_recipe(path)
    starts = {f"runs/{name}{part}" for name in NAMES for part in ("", "/last")} | {None, GENERATED}
    return recipe.data.root is None and recipe.model.weights in starts


def test_every_row_of_the_papers_tables_is_a_plan_of_a_recipe():
    rows = {"T0_0.9-S4_0.9", "T0_0.8-S4_0.9", "T0_0.6-S4_0.9", "T0_0.5", "T4_0.3", "S0_0.5"}
    rows |= {"S4_0.3", "T0_0.8-S0_0.7", "S0_0.6", "T0_0.6", "T0_0.9-S0_0.9-T4_0.7-S4_0.7"}
    rows |= {"T4_0.6-S4_0.7-T8_0.4-S8_0.7", "T0_0.9-S0_0.9-T4_0.9-S4_0.9-T8_0.7-S8_0.8"}
    plans = {path.stem: plans_of(path) for path in RECIPES}
    assert rows <= set(plans["k400_mvit_b16"])
    assert set(plans["k400_video_swin_b"]) == {"T0_0.8", "T0_0.6"}
    assert set(plans["ssv2_video_swin_b"]) == {"T0_0.7", "T0_0.6"}


def test_a_recipe_of_the_first_version_is_named_by_its_plan_now():
    gone = RECIPES[0].with_name("k400_mvit_b16_S0_0.5_tokenwise.yaml")
    with pytest.raises(FileNotFoundError, match=r"plan of .*k400_mvit_b16\.yaml: .* S0_0\.5$"):
        read_recipe(gone)
    with pytest.raises(FileNotFoundError, match=r"no recipe at .*mine\.yaml$"):
        read_recipe(gone.with_name("mine.yaml"))


def write(folder: Path, text: str, name: str = "mine.yaml") -> Path:
    path = folder / name
    path.write_text(text)
    return path


def test_a_recipe_survives_json():
    recipe = read_recipe(RECIPES[0], ["--model.budgets", '["T0_0.5", "dense"]'])
    assert recipe_from_dict(json.loads(json.dumps(recipe.to_dict()))) == recipe


def test_words_of_the_command_override_the_file(tmp_path):
    path = write(tmp_path, "name: mine\ndata: {frames: 4}\nschedule: {lr: 1e-3}\n")
    recipe = read_recipe(path, ["--schedule.epochs", "7", "--model.plan", "T0_0.5"])
    assert (recipe.schedule.epochs, recipe.model.plan) == (7, "T0_0.5")
    assert (recipe.data.frames, recipe.schedule.lr) == (4, 1e-3)


def test_a_recipe_changes_its_base_key_by_key(tmp_path):
    write(tmp_path, "name: a\nschedule: {epochs: 3, lr: 1e-3}\ndata: {size: 64}\n", "a.yaml")
    write(tmp_path, "base: a.yaml\nname: b\nschedule: {epochs: 5}\n", "b.yaml")
    recipe = read_recipe(write(tmp_path, "base: b.yaml\nname: c\nmodel: {plan: T0_0.5}\n"))
    assert (recipe.name, recipe.schedule.epochs, recipe.schedule.lr) == ("c", 5, 1e-3)
    assert (recipe.data.size, recipe.model.plan) == (64, "T0_0.5")


def test_a_base_that_comes_back_to_itself_is_refused(tmp_path):
    write(tmp_path, "base: mine.yaml\nname: a\n", "a.yaml")
    with pytest.raises(ValueError, match=r"base mine\.yaml leads back to itself"):
        read_recipe(write(tmp_path, "base: a.yaml\n"))


@pytest.mark.parametrize(
    ("text", "said"),
    [
        (
            "name: a\nschedule: {epoch: 3}\n",
            r"schedule\.epoch is not a key .* mean schedule\.epochs\?",
        ),
        ("name: a\ndata: {train: {folder: a}}\n", r"data\.train\.folder"),
        ("name: a\nmodle: {}\n", "modle"),
        ("name: a\nschedule: {epochs: many}\n", "schedule.epochs"),
        ("name: a\nschedule: 3\n", "schedule"),
        ("- a\n", "must hold a recipe's keys"),
        ("name: [a\n", "not valid YAML"),
    ],
)
def test_what_is_no_recipe_is_refused_with_the_file_and_the_key(tmp_path, text, said):
    path = write(tmp_path, text)
    with pytest.raises(ValueError, match=said) as refused:
        read_recipe(path)
    assert str(path) in str(refused.value)


def test_keys_of_the_first_version_are_read_and_named_anew(tmp_path, caplog):
    text = "name: a\nschedule: {rate: 3e-3, end_rate: 1e-5}\nmodel: {is_tokenwise: true}\n"
    recipe = read_recipe(write(tmp_path, text), ["--schedule.warmup_start=2e-5"])
    assert recipe.schedule.lr == 3e-3 and recipe.model.tokenwise
    assert (recipe.schedule.warmup_lr, recipe.schedule.min_lr) == (2e-5, 1e-5)
    assert "schedule.rate is now called schedule.lr" in caplog.text
    assert "--schedule.warmup_start is now called --schedule.warmup_lr" in caplog.text


@pytest.mark.parametrize(
    ("key", "value"),
    [
        ("schedule.batch_size", 0),
        ("schedule.accumulation", 0),
        ("schedule.accumulation", 3),
        ("schedule.epochs", 0),
        ("schedule.warmup_epochs", 21),
        ("schedule.warmup_epochs", -1),
        ("schedule.lr", -0.1),
        ("schedule.lr", ".nan"),
        ("schedule.lr", ".inf"),
        ("schedule.clip_norm", 0),
        ("schedule.ema", 1),
        ("schedule.sigma", -1),
        ("data.frames", 0),
        ("data.workers", -1),
        ("data.num_classes", 0),
        ("augmentation.flip", 1.5),
        ("augmentation.repeats", 0),
        ("seed", 2**70),
        ("threads", 0),
        ("threads", 2**70),
        ("validate_every", 0),
        ("checkpoint_steps", 0),
        ("name", ""),
    ],
)
def test_a_value_that_cannot_be_is_refused_by_its_key(tmp_path, key, value):
    path = write(tmp_path, "name: mine\n")
    with pytest.raises(ValueError, match=rf"mine\.yaml: .*{re.escape(key)} must be .*{value}"):
        read_recipe(path, [f"--{key}={value}"])


def test_a_key_that_needs_a_value_is_refused_where_it_has_none(tmp_path):
    path = write(tmp_path, "name: mine\naugmentation: {label_smoothing: null}\n")
    with pytest.raises(ValueError, match=r"augmentation\.label_smoothing"):
        read_recipe(path)


def test_a_checkpoint_of_the_first_version_may_say_0_for_no_clipping():
    values = read_recipe(RECIPES[0]).to_dict()
    values["schedule"] |= {"clip_norm": 0.0, "ema": 0.0}
    recipe = recipe_from_dict(values)
    assert recipe.schedule.clip_norm is None and recipe.schedule.ema is None
