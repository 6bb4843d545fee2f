import copy
import json
import subprocess
import sys

import pytest
import torch
from torch import nn
from torch.utils.flop_counter import FlopCounterMode

from tests.small_models import tiny_mvit, tiny_swin
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


@pytest.mark.parametrize("device", ["cpu", "meta"])
@pytest.mark.parametrize("build", [tiny_mvit, tiny_swin])
def test_the_count_is_that_of_torchs_own_counter(build, device):
    model = build("T0=3-S1=4x4").eval().to(device)
    count = count_macs(model, 2, 3, *model.default_input)
    with torch.no_grad(), FlopCounterMode(display=False) as counter:
        model.to("meta")(torch.empty(2, 3, *model.default_input, device="meta"))
    assert count.total == counter.get_total_flops() // 2
    theirs = counter.get_flop_counts()[
        "MViT.blocks.1" if build is tiny_mvit else "VideoSwin.blocks.1"
    ]
    assert count.by_module["blocks.1"] == sum(theirs.values()) // 2


@pytest.mark.slow
def test_counting_does_not_import_the_compiler():
    code = (
        "import sys; from tokenselect import create_model;"
        "from tokenselect.measure import count_macs;"
        "count_macs(create_model('mvit_mini', plan='T0_0.5-S4_0.5'), 1, 3, 16, 64, 64);"
        "assert 'torch._dynamo' not in sys.modules"
    )
    subprocess.run([sys.executable, "-c", code], check=True)


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
