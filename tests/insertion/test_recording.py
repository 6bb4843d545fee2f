"""What is recorded: every site of every method, and only the forwards of one's own thread."""

import asyncio
from concurrent.futures import ThreadPoolExecutor

import pytest
import torch
from torch import Tensor, nn

from tests.contracts import hosts
from tests.contracts.models import logits_of
from tokenselect import create_model, insert_selectors, record_kept, record_selections
from tokenselect.inference.explain import record_clip
from tokenselect.insertion import watch_grids
from tokenselect.selectors import METHODS

LOOSE = ("gumbel", "text")  # frames only; needs a prompt


@torch.no_grad()
@pytest.mark.parametrize("method", [method for method in METHODS if method not in LOOSE])
def test_every_site_of_every_method_is_recorded(method):
    model, video = hosts.vivit(), torch.randn(2, 10, 3, 48, 32)
    plan = "T1=3-S1=3x2-S2=3x2" if method != "static" else "T1=3-S1=3x2"
    insert_selectors(model, plan, method=method)
    with record_selections(model) as selections, record_kept(model) as kept:
        model(video)
    assert list(selections) == plan.replace("=", " ").replace("-", " ").split()[::2]
    places = torch.arange(5 * 6 * 4).expand(2, -1)
    for selection in selections.values():
        places = places.gather(1, selection.patches)
        assert selection.scores.isfinite().all()
    assert torch.equal(places, kept[0].indices)


@torch.no_grad()
@pytest.mark.parametrize("method", ["merge", "rlt", "evs", "diversity"])
def test_loose_tokens_can_be_explained(method):
    model = insert_selectors(hosts.videomae(), "T0=3-S1=3x2", method=method)
    inner, forward = model, model.forward
    model.forward = lambda clip: logits_of(forward(clip))
    recording = record_clip(inner, torch.randn(1, 10, 3, 48, 32))
    assert recording.maps["S1"].shape == recording.selections["S1"].thw_before


def build() -> nn.Module:
    torch.manual_seed(0)
    return create_model("mvit_mini", plan="T0_0.5-S4_0.5", num_classes=5, frames=8, size=32).eval()


def clips() -> list[Tensor]:
    return list(torch.randn(12, 1, 3, 8, 32, 32, generator=torch.Generator().manual_seed(1)))


@torch.no_grad()
def look(model: nn.Module, clip: Tensor) -> list[Tensor]:
    with torch.no_grad(), record_selections(model) as selections, watch_grids(model) as grids:
        model(clip)
    assert len(grids) == 1 + len(model.blocks)
    return [selections["T0"].scores, selections["S4"].scores]


def test_threads_that_share_a_model_hear_of_their_own_forwards():
    model = build()
    expected = [look(model, clip) for clip in clips()]
    with ThreadPoolExecutor(6) as threads:
        for found in threads.map(lambda _: [look(model, clip) for clip in clips()], range(6)):
            for scores, own in zip(found, expected, strict=True):
                torch.testing.assert_close(scores, own)
    assert not any(selector.recorders for selector in model.token_selectors.values())


def test_tasks_that_share_a_model_hear_of_their_own_forwards():
    model = build()
    expected = [look(model, clip) for clip in clips()]

    async def wait_inside(clip: Tensor) -> Tensor:
        with record_selections(model) as selections:
            await asyncio.sleep(0)
            model(clip)
            await asyncio.sleep(0)
        return selections["T0"].scores

    async def run() -> list[Tensor]:
        return await asyncio.gather(*(wait_inside(clip) for clip in clips()))

    for scores, own in zip(asyncio.run(run()), expected, strict=True):
        torch.testing.assert_close(scores, own[0])


@torch.no_grad()
def test_recordings_may_be_nested():
    model, clip = build(), clips()[0]
    with record_selections(model) as outer:
        with record_selections(model) as inner:
            model(clip)
        assert list(outer) == list(inner) == ["T0", "S4"]
        inner.clear()
        model(clip)
    assert not inner


def test_data_parallel_is_refused():
    with pytest.raises(RuntimeError, match="Use DistributedDataParallel"):
        for module in build().modules():  # as nn.parallel.replicate does
            module._replicate_for_data_parallel()
    with pytest.raises(TypeError, match="Use DistributedDataParallel"):
        insert_selectors(torch.nn.DataParallel(torch.nn.Linear(1, 1)), "T0_0.5")
