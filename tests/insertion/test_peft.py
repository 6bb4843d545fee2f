"""Selectors beside LoRA: inserted before or after it, trained, saved with its adapter."""

import copy
from types import ModuleType

import pytest
import torch
from torch import nn

from tests.contracts import hosts
from tests.contracts.language_hosts import QWENS, Prompts
from tests.contracts.models import THIRD_PARTY, logits_of
from tokenselect import (
    insert_selectors,
    record_selections,
    remove_selectors,
    set_plan,
    shrink_inputs,
)
from tokenselect.insertion import selectors_of, watch_grids

PLAN = "T0=3-S1=3x2"
LORA = {  # host to the layers that get low-rank updates
    "videomae": ["query", "value"],
    "vivit": ["q_proj", "v_proj"],
    "timesformer": ["qkv"],
    "vjepa2": ["query", "value"],
    "clip": ["q_proj", "v_proj"],
    "timm-vit": ["qkv"],
    "torchvision-mvit-v2": ["qkv"],
}
BY_NAME = {case.name: case for case in THIRD_PARTY}


@pytest.fixture(params=LORA)
def case(request):
    torch.manual_seed(0)
    return BY_NAME[request.param]


def peft_library() -> ModuleType:
    """Import peft, which imports transformers."""
    hosts.transformers()
    return pytest.importorskip("peft", reason="peft is not installed")


def wrap(model: nn.Module, name: str, *, save: list[str] | None = None) -> nn.Module:
    peft = peft_library()
    config = peft.LoraConfig(r=2, target_modules=LORA[name], modules_to_save=save)
    return peft.get_peft_model(model, config).eval()


def trainable(model: nn.Module) -> set[str]:
    return {name for name, p in model.named_parameters() if p.requires_grad}


def selector_names(model: nn.Module) -> set[str]:
    names = {name for name, _ in model.named_parameters() if "token_selectors" in name}
    return {name for name in names if "original_module" not in name}


@torch.no_grad()
def test_a_fresh_adapter_changes_nothing_in_either_order(case):
    video, dense = case.video(), case.build()
    plain = insert_selectors(copy.deepcopy(dense), PLAN, method="motion")
    expected = logits_of(plain(video))
    before = wrap(copy.deepcopy(plain), case.name)
    after = insert_selectors(wrap(dense, case.name), PLAN, method="motion")
    assert torch.equal(logits_of(before(video)), expected)
    assert torch.equal(logits_of(after(video)), expected)


@pytest.mark.parametrize("is_before", [True, False])
def test_selectors_are_trained_and_come_back_with_the_adapter(case, is_before, tmp_path):
    peft = peft_library()
    video, dense = case.video(), case.build()
    if is_before:
        selected = insert_selectors(copy.deepcopy(dense), PLAN)
        model = wrap(selected, case.name, save=["scoring"])
    else:
        model = insert_selectors(wrap(copy.deepcopy(dense), case.name), PLAN)
    names = trainable(model)
    assert selector_names(model) <= names
    assert all("lora_" in name or "token_selectors" in name for name in names)
    optimizer = torch.optim.SGD([p for p in model.parameters() if p.requires_grad], lr=0.1)
    logits_of(model.train()(video)).square().mean().backward()
    learned = [p for n, p in model.named_parameters() if n in selector_names(model)]
    assert max(p.grad.abs().max() for p in learned if p.grad is not None) > 0
    optimizer.step()
    expected = logits_of(model.eval()(video))
    model.save_pretrained(tmp_path)
    found = peft.PeftModel.from_pretrained(insert_selectors(dense, PLAN), tmp_path).eval()
    torch.testing.assert_close(logits_of(found(video)), expected)
    merged = found.merge_and_unload()
    torch.testing.assert_close(logits_of(merged(video)), expected, rtol=1e-4, atol=1e-5)


@torch.no_grad()
def test_a_peft_model_is_watched_changed_and_cleaned_like_any_other():
    case = BY_NAME["videomae"]
    video, model = case.video(), wrap(case.build(), "videomae")
    dense, keys = model(video).logits, list(model.state_dict())
    insert_selectors(model, PLAN)
    with record_selections(model) as selections, watch_grids(model) as grids:
        model(video)
    assert list(selections) == ["T0", "S1"] and grids[-1] == (3, 3, 2)
    set_plan(model, "T0=2")
    assert str(selectors_of(model).plan) == "T0=2"
    remove_selectors(model)
    assert list(model.state_dict()) == keys
    assert torch.equal(model(video).logits, dense)


def test_an_adapter_made_for_all_linear_layers_leaves_the_selectors_whole():
    peft = peft_library()
    model = insert_selectors(hosts.videomae(), PLAN)
    config = peft.LoraConfig(r=2, target_modules="all-linear", modules_to_save=["scoring"])
    wrapped = peft.get_peft_model(model, config)
    assert selector_names(wrapped) <= trainable(wrapped)
    assert not any("lora" in name for name in selector_names(wrapped))


@torch.no_grad()
def test_a_video_language_model_with_lora_keeps_its_prompt_in_step():
    peft = peft_library()
    torch.manual_seed(0)
    dense, inputs = QWENS["qwen2-vl"](), Prompts().add(3, (3, 6, 4), 4).inputs()
    plain = insert_selectors(copy.deepcopy(dense), "T0=2-S4_0.5", method="motion")
    expected = plain(**inputs).logits
    model = peft.get_peft_model(dense, peft.LoraConfig(r=2, target_modules=["q_proj", "v_proj"]))
    insert_selectors(model.eval(), "T0=2-S4_0.5", method="motion")
    assert torch.equal(model(**inputs).logits, expected)
    words = model.generate(**shrink_inputs(model, inputs), max_new_tokens=2, do_sample=False)
    same = plain.generate(**shrink_inputs(plain, inputs), max_new_tokens=2, do_sample=False)
    assert torch.equal(words, same)
