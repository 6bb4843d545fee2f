"""The probation: taught and even selection take turns, then held-out clips choose."""

from contextlib import suppress

import pytest
import torch
from torch.testing import assert_close

from tests.small_models import tiny_mvit
from tests.training.test_build import SMALL, small_recipe
from tokenselect import record_selections
from tokenselect.training import choices, teach
from tokenselect.training.checkpoint import find_newest
from tokenselect.training.choices import taught_scoring, taught_selectors
from tokenselect.training.distributed import Processes, spread
from tokenselect.training.learner import Learner
from tokenselect.training.probation import Probation
from tokenselect.training.run import train
from tokenselect.training.teach import EVEN, choose_trust

PLAN = "T0=2-S1=2x2"


@pytest.fixture
def model():
    """A model whose selectors were taught something that is not uniform selection."""
    torch.manual_seed(0)
    model = tiny_mvit(PLAN, scorer="taught")
    for site in taught_selectors(model).plan:
        scoring = taught_scoring(model, site)
        torch.nn.init.normal_(scoring.network.score.weight)
        scoring.trust(0.0, 0.0)
    return model


def trusted(model) -> list[tuple[float, float]]:
    found = [taught_scoring(model, site) for site in taught_selectors(model).plan]
    return [(float(scoring.evenness), float(scoring.steadiness)) for scoring in found]


def kept(model, clips) -> dict[str, torch.Tensor]:
    with record_selections(model) as selections, torch.no_grad():
        model(clips)
    found = selections.items()
    return {site: s.indices if s.corners is None else s.corners for site, s in found}


def clips_of(model) -> torch.Tensor:
    return torch.randn(2, 3, *model.default_input)


def test_taught_and_even_selection_take_turns(model):
    probation = Probation(model, [], [], 20)
    turns = []
    for step in range(8):
        with probation.turn(step):
            turns.append([evenness for evenness, _ in trusted(model)])
        assert trusted(model) == [(0.0, 0.0), (0.0, 0.0)]
    assert turns == [[0, 0], [1, 1], [0, 0], [1, 1], [0, 0], [1, 1], [0, 0], [0, 0]]  # six steps


def test_an_even_turn_trains_on_what_uniform_selection_keeps(model):
    clips = clips_of(model)
    plain = tiny_mvit(PLAN, method="uniform").train()
    expected = kept(plain, clips)
    with Probation(model, [], [], 20).turn(3):
        found = kept(model.train(), clips)
    assert all(torch.equal(found[site], expected[site]) for site in expected)


@pytest.mark.parametrize(("lead", "expected"), [(0.0, 1), (1.0, 0)])
def test_taught_selection_stays_only_where_it_is_clearly_better(model, monkeypatch, lead, expected):
    noise = 0.1 * torch.randn(2, 50, generator=torch.Generator().manual_seed(0))

    def losses(model, clips, labels):
        return noise[int(scoring.is_even)] - (0.0 if scoring.is_even else lead)

    monkeypatch.setattr(choices, "losses_of", losses)
    for site in taught_selectors(model).plan:
        scoring = taught_scoring(model, site)
        ways = [scoring.trusted, EVEN]
        choose_trust(model, site, [(clips_of(model), torch.zeros(2).long())], ways=ways)
        assert scoring.is_even == expected


def shown_to(model) -> list[tuple[torch.Tensor, torch.Tensor]]:
    return [(clips_of(model), torch.tensor([0, 1]))]


def test_a_lead_that_is_not_clear_is_enough_to_begin_a_probation(model, monkeypatch):
    noise = torch.randn(50, generator=torch.Generator().manual_seed(0))
    noise = (noise - noise.mean()) / noise.std() + 2 / 50**0.5  # ahead by two standard errors
    site = taught_selectors(model).plan.sites[0]
    scoring = taught_scoring(model, site)
    monkeypatch.setattr(
        choices,
        "losses_of",
        lambda model, clips, labels: noise[: len(labels)] * scoring.is_even,
    )
    held_out = [(clips_of(model), torch.zeros(50).long())]
    teach.teach_selectors(model, shown_to(model), held_out=held_out, steps=2)
    assert scoring.is_even
    few = {**teach.teach_selectors.__kwdefaults__, "steps": 2}
    monkeypatch.setattr(teach.teach_selectors, "__kwdefaults__", few)
    Probation(model, shown_to(model), held_out, 20).teach(str)
    assert not scoring.is_even


def test_a_probation_ends_with_a_word_for_each_site(model):
    told = []
    probation = Probation(model.train(), shown_to(model), shown_to(model), 20)
    assert [step for step in range(20) if probation.is_due(step)] == [6, 12]
    probation.look_back(6, told.append)
    ends = [line.split(":")[0] for line in told if line.endswith("from here on")]
    assert ends == ["T0=2", "S1=2x2"]


def test_weights_that_learnt_from_parts_teach_what_is_not_even_again(model):
    taught_scoring(model, taught_selectors(model).plan.sites[1]).trust(*EVEN)
    before = {name: value.clone() for name, value in model.state_dict().items()}
    Probation(model, shown_to(model), shown_to(model), 20).look_back(12, str)
    changed = {
        name for name, value in model.state_dict().items() if not torch.equal(value, before[name])
    }
    assert changed and all(name.startswith("token_selectors.T0.") for name in changed)
    assert str(taught_selectors(model).plan) == PLAN
    assert all(weight.requires_grad for weight in model.parameters())


def test_even_selection_is_hard_in_training_and_stays_so_when_loaded(model):
    clips, again = clips_of(model), tiny_mvit(PLAN, scorer="taught")
    for site in taught_selectors(model).plan:
        taught_scoring(model, site).trust(*EVEN)
    again.load_state_dict(model.state_dict())
    hard = model.eval()(clips)
    for one in (model.train(), again.train()):
        assert_close(one(clips), hard, atol=1e-5, rtol=1e-5)


def test_a_run_killed_on_probation_ends_like_one_that_was_not(tmp_path, monkeypatch):
    few = {**teach.teach_selectors.__kwdefaults__, "steps": 2}
    monkeypatch.setattr(teach.teach_selectors, "__kwdefaults__", few)
    monkeypatch.setattr(teach, "EVENNESS", (0.0,))
    monkeypatch.setattr(teach, "choose_way", lambda losses, ways, **_: 0)  # what was taught
    long = {"schedule": SMALL["schedule"] | {"epochs": 4}, "checkpoint_steps": 1}
    train(small_recipe(tmp_path, name="dense"))
    start = {"plan": "T0_0.5", "weights": str(tmp_path / "dense")}
    ended = []
    for name, stop in (("whole", None), ("killed", 1)):
        recipe = small_recipe(tmp_path, name=name, model=start, **long)
        with monkeypatch.context() as patch, suppress(KeyboardInterrupt):
            patch.setattr(Learner, "learn", dying_at(stop))
            train(recipe)
        train(recipe, resume=True)
        ended.append(find_newest(recipe.folder).weights)
    assert_close(*ended, rtol=0, atol=0)


def dying_at(step):
    learn = Learner.learn

    def learn_or_die(self, parts, at):
        if at == step:
            raise KeyboardInterrupt
        return learn(self, parts, at)

    return learn_or_die


@pytest.mark.parametrize("strategy", ["ddp", "fsdp"])
def test_processes_look_back_together(model, tmp_path, monkeypatch, strategy):
    """One process is enough to see that what is sharded is not broadcast."""
    monkeypatch.setenv("GLOO_SOCKET_IFNAME", "lo")  # no machine's name need resolve
    place = f"file://{tmp_path / 'group'}"
    torch.distributed.init_process_group("gloo", init_method=place, rank=0, world_size=1)
    told = []
    try:
        spread(model, Processes(), strategy)
        probation = Probation(model, shown_to(model), shown_to(model), 20)
        for step in (step for step in range(20) if probation.is_due(step)):
            probation.look_back(step, told.append)
    finally:
        torch.distributed.destroy_process_group()
    assert told[-1].startswith("S1=2x2: ") and told[-1].endswith("from here on")
