"""Runtimes that answer in torch's place: same answers, one file for a model, the fastest named."""

import importlib.util
import time

import pytest
import torch
from torch import nn

from tests.small_models import tiny_mvit
from tokenselect import create_model
from tokenselect.checkpoints import info_of
from tokenselect.cli.options import RuntimeOptions
from tokenselect.export import open_runtime, runtimes, time_runtimes

pytestmark = pytest.mark.slow  # tracing a model takes seconds


@pytest.fixture(autouse=True)
def cache(tmp_path, monkeypatch):
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path))
    return tmp_path / "tokenselect" / "runtimes"


@pytest.fixture(scope="module")
def model() -> nn.Module:
    small = tiny_mvit("T0=3-S1=4x5").eval()
    frames, height, width = small.default_input
    sizes = {"num_classes": 5, "frames": frames, "size": [height, width]}
    small.settings = {"name": "mvit_mini", **sizes}  # as a model of create_model has them
    return small


@pytest.mark.parametrize("runtime", ["onnxruntime", "openvino"])
def test_a_runtime_gives_torchs_logits_in_any_batch_and_its_file_is_made_once(
    runtime, model, cache
):
    pytest.importorskip(runtime)
    run = open_runtime(model, runtime)
    for b in (1, 3):
        clips = torch.randn(b, *info_of(model).clip_rule.shape[1:])
        with torch.no_grad():
            torch.testing.assert_close(run(clips), model(clips), rtol=0, atol=1e-4)
    told: list[str] = []
    open_runtime(model, runtime, tell=told.append)
    assert told == []
    assert any(cache.iterdir())


def test_the_file_of_a_model_follows_its_weights_and_its_plan(model):
    names = {runtimes.cached_file(model, runtimes.OnnxModel)}
    other = create_model("mvit_mini", plan="T0=1", num_classes=5, frames=4, size=32)
    names.add(runtimes.cached_file(other, runtimes.OnnxModel))
    with torch.no_grad():
        other.classifier.bias += 1
    names.add(runtimes.cached_file(other, runtimes.OnnxModel))
    assert len(names) == 3


def test_the_fastest_runtime_is_picked_and_named(model, monkeypatch, capsys):
    opened = {"torch": model, "onnxruntime": model}

    def open_one(model, runtime, **_):
        if runtime not in opened:
            raise runtimes.MissingExtraError("no openvino")
        return opened[runtime]

    monkeypatch.setattr(runtimes, "open_runtime", open_one)
    times = iter([3.0, 2.0])
    monkeypatch.setattr(
        runtimes, "measure_latency", lambda tasks, repeats: {name: next(times) for name in tasks}
    )
    told: list[str] = []
    assert list(time_runtimes(model, tell=told.append)) == ["onnxruntime", "torch"]
    assert "without openvino: no openvino" in told
    times = iter([3.0, 2.0])
    assert RuntimeOptions(runtime="auto").pick(model).keywords["runtime"] == "onnxruntime"
    assert "runtime onnxruntime is the fastest here" in capsys.readouterr().err


def test_the_fastest_is_found_by_running_them(model):
    pytest.importorskip("onnxruntime")
    installed = {"torch", "onnxruntime"}
    if importlib.util.find_spec("openvino"):
        installed.add("openvino")
    assert set(time_runtimes(model, repeats=1)) == installed  # makes the files, too
    handle = model.register_forward_hook(lambda *_: time.sleep(0.3))
    try:
        seconds = time_runtimes(model, repeats=3)
    finally:
        handle.remove()
    assert list(seconds)[-1] == "torch"
    assert list(seconds.values()) == sorted(seconds.values())
    assert all(len(timing.samples) == 3 for timing in seconds.values())


def test_an_unknown_runtime_is_refused():
    with pytest.raises(ValueError, match="runtime must be one of torch, onnxruntime"):
        open_runtime(tiny_mvit("T0=2"), "tensorrt")
