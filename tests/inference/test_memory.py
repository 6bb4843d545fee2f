"""A model prepared for inference gives what it gave."""

import sys

import pytest
import torch

from tokenselect import create_model, optimize_for_inference
from tokenselect.inference import memory


@pytest.mark.parametrize("name", ["mvit_mini", "video_swin_mini"])
def test_logits_stay_the_same(name):
    torch.manual_seed(0)
    model = create_model(name, plan="T0_0.6", num_classes=5, frames=8, size=64).eval()
    video = torch.randn(2, 3, 8, 64, 64)
    plain = model(video).detach()
    with torch.inference_mode():
        prepared = optimize_for_inference(model.train())(video)
    torch.testing.assert_close(prepared, plain, rtol=0, atol=1e-4)


def test_nothing_wants_gradients_any_more():
    model = optimize_for_inference(torch.nn.Linear(3, 2).train())
    assert not model.training
    assert not any(weight.requires_grad for weight in model.parameters())


def test_the_process_is_changed_only_on_request(monkeypatch):
    asked: list[bool] = []
    monkeypatch.setattr(memory, "keep_freed_memory", lambda: asked.append(True))
    optimize_for_inference(torch.nn.Identity())
    assert asked == []
    optimize_for_inference(torch.nn.Identity(), keep_memory=True)
    assert asked == [True]


def test_memory_is_left_alone_where_the_system_has_another_allocator(monkeypatch):
    monkeypatch.setattr(sys, "platform", "darwin")
    assert memory.keep_freed_memory() is False
