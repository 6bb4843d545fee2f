import torch

from tests.training.test_build import small_recipe
from tests.training.tiny import losses_of
from tokenselect.checkpoints import load_model
from tokenselect.cli.train import train
from tokenselect.insertion import selectors_of
from tokenselect.plan import SelectionPlan
from tokenselect.training.build import build_trainer
from tokenselect.training.distributed import Processes
from tokenselect.training.learner import DEFAULT, Budgets

ANY = {"plan": "any", "budgets": ["T0_0.5", "T0_1-S2_0.5", "dense"]}


def test_the_plan_of_a_step_follows_from_seed_and_step():
    budgets = Budgets.of(())
    drawn = [str(budgets.at(3, step)) for step in range(200)]
    assert drawn == [str(budgets.at(3, step)) for step in range(200)]
    assert set(drawn) == set(DEFAULT)
    assert drawn != [str(budgets.at(4, step)) for step in range(200)]


def test_all_sites_of_all_plans_are_there():
    whole = Budgets.of(["T0_0.5", "T0_0.9-S2_0.6", "S4=3x3"]).whole
    assert str(whole) == "T0_0.5-S2_0.6-S4=3x3"


def test_each_step_sets_its_plan(tmp_path):
    trainer = build_trainer(small_recipe(tmp_path, model=ANY), Processes())
    learner = trainer.learner
    parts = [(torch.randn(2, 3, 4, 32, 32), torch.tensor([0, 1]))]
    drawn = [learner.budgets.at(0, step) for step in range(8)]
    assert len(set(drawn)) > 1
    for step, plan in enumerate(drawn):
        learner.learn(parts, step)
        assert selectors_of(learner.model).plan == plan


def test_one_model_is_trained_resumed_and_tested_at_any_budget(tmp_path):
    recipe = small_recipe(tmp_path, model=ANY, checkpoint_steps=1)
    train(recipe)
    stopped = small_recipe(tmp_path, model=ANY, name="stopped", checkpoint_steps=1)
    trainer = build_trainer(stopped, Processes())
    trainer.learner.learn(next(iter([[next(iter(trainer.loader))]])), 0)
    trainer.step = 1
    trainer.save()
    train(stopped, resume=True)
    assert losses_of(recipe.folder)[1:] == losses_of(stopped.folder)
    for plan in ("T0_0.25", "S2_0.3", "T0_0.5-S2_0.7"):
        model = load_model(recipe.folder, plan=plan)
        assert selectors_of(model).plan == SelectionPlan.parse(plan)
