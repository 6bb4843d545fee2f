"""A dense and a selected model, compiled in one process, do not get each other's graphs."""

import subprocess
import sys

import pytest

from tokenselect import create_model, remove_selectors

BUILD = """
import torch
from tokenselect import create_model
def build(plan):
    torch.manual_seed(0)
    return create_model("mvit_mini", plan=plan, num_classes=5).eval()
compiled_models = {}
def check(model):
    compiled = compiled_models.setdefault(model, torch.compile(model, backend="eager"))
    with torch.no_grad():
        torch.testing.assert_close(compiled(clip), model(clip))
clip = torch.randn(1, 3, 16, 64, 64)
"""
ORDERS = {
    "both built before": """
dense, selected = build(None), build("T0_0.5")
check(dense)
check(selected)
""",
    "dense compiled before": """
check(build(None))
check(build("T0_0.5"))
""",
    "selected compiled before": """
check(build("T0_0.5"))
check(build(None))
""",
    "selected from a file": """
import io
file = io.BytesIO()
torch.save(build("T0_0.5"), file)
torch._dynamo.config.skip_nnmodule_hook_guards = True  # as in a process that inserted nothing
check(build(None))
file.seek(0)
check(torch.load(file, weights_only=False))
""",
    "two plans": """
check(build("T0_0.5"))
check(build("T0_0.25"))
check(build("T0_0.25-S4_0.5"))
check(build("T8_0.5"))
""",
    "attention of the block before": """
from tokenselect import insert_selectors
check(build(None))
check(insert_selectors(build(None), "T2_0.5", method="attention"))
""",
    "plan of a compiled model": """
from tokenselect import insert_selectors, remove_selectors, set_plan
model = build(None)
check(model)
insert_selectors(model, "T0_0.5")
check(model)
set_plan(model, "T0_0.25")
check(model)
remove_selectors(model)
check(model)
torch.testing.assert_close(model(clip), build(None)(clip))
""",
}


@pytest.mark.parametrize("order", ORDERS.values(), ids=ORDERS.keys())
def test_graphs_are_not_mixed_up(order: str) -> None:
    # A process of its own: whether the compiler is loaded already is part of the case.
    subprocess.run([sys.executable, "-c", BUILD + order], check=True, timeout=600)


def test_copies_share_a_graph() -> None:
    code = """
import copy
from torch._dynamo.testing import CompileCounter
count, model = CompileCounter(), build("T0_0.5")
for twin in (model, copy.deepcopy(model), build("T0_0.5")):
    with torch.no_grad():
        torch.compile(twin, backend=count)(clip)
assert count.frame_count == 1, count.frame_count
"""
    subprocess.run([sys.executable, "-c", BUILD + code], check=True, timeout=600)


def test_nothing_outside_the_model_is_changed() -> None:
    code = """
import sys
from torch._dynamo import config
from torch._dynamo.testing import CompileCounter
from tokenselect import remove_selectors
finders, settings, count = list(sys.meta_path), config.get_config_copy(), CompileCounter()
other = torch.compile(torch.nn.Linear(3, 2), backend=count)
other(torch.ones(1, 3))
remove_selectors(build("T0_0.5"))
other(torch.ones(1, 3))
assert count.frame_count == 1, "the graph of another model was dropped"
assert (finders, settings) == (sys.meta_path, config.get_config_copy())
"""
    subprocess.run([sys.executable, "-c", BUILD + code], check=True, timeout=600)


def test_removal_leaves_forward_as_it_was() -> None:
    model = create_model("mvit_mini", plan="T0_0.5", num_classes=5)
    assert "forward" in model.blocks[0].__dict__ and "forward" not in model.blocks[1].__dict__
    model.blocks[3].forward = patched = lambda grid: grid
    remove_selectors(model)
    left = [m.__dict__["forward"] for m in model.modules() if "forward" in m.__dict__]
    assert left == [patched]


def test_compiler_is_not_imported() -> None:
    code = "import sys; assert 'torch._dynamo' not in sys.modules"
    subprocess.run(
        [sys.executable, "-c", BUILD + 'build("T0_0.5")\n' + code], check=True, timeout=600
    )
