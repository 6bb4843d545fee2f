import pytest
import torch
from torch import nn

from tests.training.tiny import TinyBackbone
from tokenselect.training.optimizer import build_optimizer, set_lr


def selected_model() -> nn.Module:
    model = TinyBackbone()
    model.token_selectors = nn.ModuleDict({"T0": nn.Linear(8, 4)})
    model.class_token = nn.Parameter(torch.zeros(1, 1, 8))
    model.relative_position_bias_table = nn.Parameter(torch.zeros(9, 2))
    return model


def names_in(model: nn.Module, optimizer: torch.optim.Optimizer, **wanted: float) -> set[str]:
    """Names of the parameters whose group has these values."""
    names = {id(parameter): name for name, parameter in model.named_parameters()}
    return {
        names[id(parameter)]
        for group in optimizer.param_groups
        if all(group[key] == value for key, value in wanted.items())
        for parameter in group["params"]
    }


def test_every_parameter_is_in_exactly_one_group():
    model = selected_model()
    optimizer = build_optimizer(model)
    grouped = [id(p) for group in optimizer.param_groups for p in group["params"]]
    assert sorted(grouped) == sorted(id(p) for p in model.parameters())


def test_only_the_selectors_take_the_full_rate():
    model = selected_model()
    optimizer = build_optimizer(model, backbone_factor=0.01)
    set_lr(optimizer, 2.0)
    selectors = {name for name, _ in model.named_parameters() if name.startswith("token_selectors")}
    assert names_in(model, optimizer, lr=2.0) == selectors
    assert len(names_in(model, optimizer, lr=0.02)) == len(list(model.parameters())) - 2


def test_taught_selectors_learn_at_a_rate_of_their_own():
    model = selected_model()
    optimizer = build_optimizer(model, backbone_factor=0.3, selector_factor=0.1)
    set_lr(optimizer, 2.0)
    slow = {name for name, _ in model.named_parameters() if name.startswith("token_selectors")}
    assert names_in(model, optimizer, lr=0.2) == slow
    assert len(names_in(model, optimizer, lr=0.6)) == len(list(model.parameters())) - len(slow)


def test_vectors_and_tables_are_not_decayed():
    model = selected_model()
    decayed = names_in(model, build_optimizer(model, weight_decay=0.3), weight_decay=0.3)
    assert decayed == {
        "patch.weight",
        "blocks.0.linear.weight",
        "blocks.1.linear.weight",
        "classifier.weight",
        "token_selectors.T0.weight",
    }


def test_what_the_model_itself_spares_is_not_decayed():
    model = TinyBackbone()
    model.no_weight_decay_names = lambda: {"patch.weight"}
    optimizer = build_optimizer(model, weight_decay=0.3)
    assert "patch.weight" not in names_in(model, optimizer, weight_decay=0.3)


def test_frozen_parameters_are_left_out():
    model = TinyBackbone()
    model.patch.requires_grad_(False)
    groups = build_optimizer(model).param_groups
    assert sum(len(group["params"]) for group in groups) == len(list(model.parameters())) - 2


def test_a_model_with_nothing_to_train_is_refused():
    with pytest.raises(ValueError, match="no parameter"):
        build_optimizer(nn.ReLU())
