"""Small models whose every parameter matters."""

import torch
from torch import Tensor, nn

from tokenselect.backbones.mvit import MViT
from tokenselect.backbones.video_swin import VideoSwin
from tokenselect.insertion import insert_selectors


def scramble(model: nn.Module, seed: int = 0) -> nn.Module:
    """Give every parameter a value that matters: fresh norms and biases hide mistakes.

    None depends on the fresh ones, which differ between versions of torch.
    """
    torch.manual_seed(seed)
    with torch.no_grad():
        for module in model.modules():
            for name, parameter in module.named_parameters(recurse=False):
                scale = 0.3 if parameter.ndim == 1 else parameter[0].numel() ** -0.5
                mean = float(isinstance(module, nn.LayerNorm) and name == "weight")
                parameter.normal_(mean, scale)
    return model.eval()


def small_mvit(
    plan: str = "", *, num_classes: int = 7, frames: int = 10, size: tuple[int, int] = (48, 64)
) -> nn.Module:
    model = MViT(
        num_classes=num_classes,
        frames=frames,
        size=size,
        depth=4,
        channels=8,
        num_heads=1,
        q_strides={1: (1, 2, 2), 3: (1, 2, 2)},
        kv_stride=(1, 4, 4),
    )
    return insert_selectors(model, plan, scorer="released").eval()


def small_swin(
    plan: str = "", *, num_classes: int = 7, window: tuple[int, int, int] = (4, 3, 3)
) -> nn.Module:
    model = VideoSwin(
        num_classes=num_classes,
        frames=16,
        size=(48, 48),
        channels=8,
        depths=(2, 3, 2),
        num_heads=(1, 2, 4),
        window=window,
    )
    return insert_selectors(model, plan, scorer="released").eval()


def clips(model: nn.Module) -> Tensor:
    return torch.randn(2, 3, *model.default_input, generator=torch.Generator().manual_seed(1))


@torch.no_grad()
def assert_same_logits(ours: nn.Module, theirs: nn.Module) -> None:
    video = clips(ours)
    expected = theirs(video)
    assert expected.std() > 0.01
    torch.testing.assert_close(ours(video), expected, rtol=0, atol=1e-5)
