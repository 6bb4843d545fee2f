import copy
import json

import pytest
import torch
from torch import nn

from tokenselect.measure.cost import Timing, are_told_apart, count_macs, measure_latency


class Attention(nn.Module):
    def forward(self, tokens):
        return nn.functional.scaled_dot_product_attention(tokens, tokens, tokens)


def test_a_linear_layer_costs_its_multiplications():
    model = nn.Sequential(nn.Linear(6, 5), nn.ReLU(), nn.Linear(5, 3))
    count = count_macs(model, 2, 7, 6)
    assert count.total == 2 * 7 * (6 * 5 + 5 * 3)
    assert count.by_module["0"] == 2 * 7 * 6 * 5


def test_fused_attention_is_counted():
    assert count_macs(Attention(), 1, 2, 7, 4).total == 2 * (2 * 7 * 7 * 4)


def test_counting_leaves_the_model_alone():
    model = nn.Sequential(nn.Linear(6, 5), nn.Dropout()).train()
    weight = model[0].weight.clone()
    count_macs(model, 1, 6)
    assert model.training and model[0].weight.device.type == "cpu"
    assert torch.equal(model[0].weight, weight)


def test_tasks_are_timed_in_turns():
    calls = []
    tasks = {name: lambda name=name: calls.append(name) for name in "ab"}
    seconds = measure_latency(tasks, repeats=2, warmup=1)
    assert calls == ["a", "b"] * 3
    assert set(seconds) == {"a", "b"} and min(seconds.values()) >= 0


def test_no_repeats_are_refused():
    with pytest.raises(ValueError, match="repeats must be at least 1, got 0"):
        measure_latency({}, repeats=0)


def test_times_carry_their_spread_and_are_not_told_apart_in_noise():
    quiet, slow = Timing([1.0, 1.1, 1.2, 1.1]), Timing([2.0, 2.1, 2.2, 2.1])
    assert quiet == 1.1 and str(quiet) == "1.1 ± 0.025"
    assert are_told_apart(quiet, slow) and are_told_apart(slow, quiet)
    assert not are_told_apart(Timing([1.0, 3.0, 1.0, 3.0]), Timing([2.0, 2.0, 2.0, 2.0]))
    assert not are_told_apart(Timing([1.0]), Timing([2.0]))  # once is no measurement
    copied = copy.deepcopy(slow.scaled(1e3))
    assert copied.samples == (2000.0, 2100.0, 2200.0, 2100.0) and json.dumps(copied) == "2100.0"
