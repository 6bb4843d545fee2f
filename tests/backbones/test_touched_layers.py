"""A layer that someone replaced, wrapped or hooked is called, once and with all tokens."""

import copy
import warnings
from collections import Counter
from collections.abc import Callable

import pytest
import torch
from torch import Tensor, nn
from torch.ao.quantization import quantize_dynamic
from torch.nn.modules.module import register_module_forward_hook
from torch.nn.utils import parametrizations, prune

from tests.contracts import hosts
from tests.small_models import tiny_mvit, tiny_swin
from tokenselect.backbones import fast_cpu
from tokenselect.backbones.fast_cpu import is_untouched

MODES = [(training, grad) for training in (True, False) for grad in (True, False)]


@pytest.fixture(params=[tiny_mvit, tiny_swin], ids=["mvit", "swin"])
def model(request, monkeypatch) -> nn.Module:
    """Build a model whose fast paths would take very few tokens at a time."""
    for name in ("CLIP_VALUES", "TOKEN_VALUES", "MIN_TOKENS", "PORTION"):
        monkeypatch.setattr(fast_cpu, name, 64)
    torch.manual_seed(0)
    return request.param("T0=3-S1=4x5", method="uniform")


def run(model: nn.Module, training: bool, grad: bool) -> Tensor:
    base = model.get_base_model() if hasattr(model, "get_base_model") else model
    video = torch.randn(3, 3, *base.default_input, generator=torch.Generator().manual_seed(1))
    with torch.set_grad_enabled(grad):
        return model.train(training)(video).detach()


def called(model: nn.Module) -> list[str]:
    """Name every module that a forward goes through."""
    passive = (nn.ModuleList, nn.ModuleDict)
    named = model.named_modules()
    return [n for n, m in named if not (isinstance(m, passive) or n.endswith(".scoring"))]


@pytest.mark.parametrize(("training", "grad"), MODES)
def test_a_hook_on_every_layer_fires_for_each(model, training, grad):
    seen: Counter[str] = Counter()
    for name in called(model):
        model.get_submodule(name).register_forward_hook(
            lambda *_, name=name: seen.update([name]) or None
        )
    run(model, training, grad)
    expected = {name: 2 if name.endswith("drop_path") else 1 for name in called(model)}
    assert seen == expected


def bend(tokens: Tensor | tuple[Tensor]) -> Tensor:
    """Change values so that no norm behind can undo it."""
    tokens = tokens if isinstance(tokens, Tensor) else tokens[0]
    return tokens + torch.sin(3 * tokens)


KINDS = (nn.Linear, nn.LayerNorm, nn.Conv3d)


@pytest.mark.parametrize("register", ["register_forward_hook", "register_forward_pre_hook"])
def test_what_a_hook_changes_counts_in_every_mode(model, register):
    plain = run(model, False, False)
    names = [name for name, layer in model.named_modules() if isinstance(layer, KINDS)]
    for name in names:
        changed = copy.deepcopy(model)
        getattr(changed.get_submodule(name), register)(lambda *given: bend(given[-1]))
        expected = run(changed, True, True)
        is_read = not name.endswith("pool_q.conv")  # in the last block only the class token is
        assert torch.allclose(expected, plain) != is_read, name
        for mode in MODES:
            torch.testing.assert_close(run(changed, *mode), expected)


def test_global_and_backward_hooks_keep_the_fast_path_away(model):
    block = model.blocks[0]
    assert is_untouched(*block.children())
    handle = register_module_forward_hook(lambda *_: None)
    assert not is_untouched(*block.children())
    handle.remove()
    for register in ("register_full_backward_hook", "register_full_backward_pre_hook"):
        handle = getattr(block.mlp.expand, register)(lambda *_: None)
        assert not is_untouched(*block.children())
        handle.remove()
    assert is_untouched(*block.children())


class Bent(nn.Linear):
    def forward(self, tokens: Tensor) -> Tensor:
        return bend(super().forward(tokens))


class Wrapped(nn.Module):
    """A wrapper that says nothing of what is inside."""

    def __init__(self, layer: nn.Module) -> None:
        super().__init__()
        self.inside = layer

    def forward(self, *given: Tensor) -> Tensor:
        return bend(self.inside(*given))


def subclass(layer: nn.Module) -> nn.Module:
    twin = Bent(layer.in_features, layer.out_features, bias=layer.bias is not None)
    twin.load_state_dict(layer.state_dict())
    return twin


def patch_forward(layer: nn.Module) -> nn.Module:
    forward = layer.forward
    layer.forward = lambda *given: bend(forward(*given))
    return layer


def weight_norm(layer: nn.Linear) -> nn.Module:
    layer = parametrizations.weight_norm(layer)
    with torch.no_grad():
        layer.parametrizations.weight.original0.mul_(2)
    return layer


def prune_half(layer: nn.Module) -> nn.Module:
    return prune.l1_unstructured(layer, "weight", amount=0.5)


CHANGES: dict[str, Callable[[nn.Linear], nn.Module]] = {
    "subclass": subclass,
    "wrapper": Wrapped,
    "patched forward": patch_forward,
    "parametrised": weight_norm,
    "pruned": prune_half,
    "no bias": lambda layer: nn.Linear(layer.in_features, layer.out_features, bias=False),
}


@pytest.mark.parametrize("change", CHANGES.values(), ids=CHANGES.keys())
def test_a_changed_layer_counts_in_every_mode(model, change):
    plain = run(model, False, False)
    linears = [name for name, layer in model.named_modules() if type(layer) is nn.Linear]
    for name in linears:
        changed = copy.deepcopy(model)
        changed.set_submodule(name, change(changed.get_submodule(name)))
        expected = run(changed, True, True)
        assert not torch.allclose(expected, plain), name
        for mode in MODES:
            torch.testing.assert_close(run(changed, *mode), expected)


def test_wrapped_convolutions_and_norms_are_called(model):
    for name, layer in list(model.named_modules()):
        if isinstance(layer, (nn.Conv3d, nn.LayerNorm)):
            model.set_submodule(name, Wrapped(layer))
    expected = run(model, True, True)
    for mode in MODES:
        torch.testing.assert_close(run(model, *mode), expected)


def test_lora_counts_in_every_mode(model):
    plain = run(model, False, False)
    hosts.transformers()  # peft imports it
    peft = pytest.importorskip("peft", reason="peft is not installed")
    adapted = peft.get_peft_model(model, peft.LoraConfig(r=2, target_modules="all-linear"))
    for name, parameter in adapted.named_parameters():
        if "lora_B" in name:
            nn.init.normal_(parameter, std=0.5)
    expected = run(adapted, True, True)
    assert not torch.allclose(expected, plain)
    for mode in MODES:
        torch.testing.assert_close(run(adapted, *mode), expected)
    merged = adapted.merge_and_unload()
    for mode in MODES:
        torch.testing.assert_close(run(merged, *mode), expected, atol=1e-4, rtol=1e-4)


def test_dynamically_quantised_layers_are_called(model):
    plain = run(model, False, False)
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        quantised = quantize_dynamic(model.eval(), {nn.Linear}, dtype=torch.qint8)
    expected = run(quantised, False, True)
    assert not torch.equal(expected, plain)
    torch.testing.assert_close(expected, plain, atol=0.3, rtol=0.3)
    torch.testing.assert_close(run(quantised, False, False), expected)
