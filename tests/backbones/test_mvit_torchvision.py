"""Our MViT against torchvision's with the same weights."""

import pytest
import torch

from benchmarks.torchvision_import import import_torchvision
from tokenselect.backbones.mvit import MViT, from_torchvision, mvit_b16

reference = import_torchvision("torchvision.models.video.mvit")

STRIDES = {2: (1, 2, 2), 3: (2, 2, 2)}


def reference_model(*, frames: int, size: tuple[int, int]) -> torch.nn.Module:
    """Build torchvision's model with the stages of `our_model`."""
    rows = [
        # heads, channels, out, q stride, kv stride
        (1, 8, 8, [], [2, 4, 4]),
        (1, 8, 16, [], [2, 4, 4]),
        (2, 16, 32, [1, 2, 2], [2, 2, 2]),
        (4, 32, 32, [2, 2, 2], [1, 1, 1]),
        (4, 32, 32, [], [1, 1, 1]),
    ]
    settings = [
        reference.MSBlockConfig(
            num_heads=heads,
            input_channels=channels,
            output_channels=out,
            kernel_q=[3, 3, 3] if q_stride else [],
            kernel_kv=[3, 3, 3],
            stride_q=q_stride,
            stride_kv=kv_stride,
        )
        for heads, channels, out, q_stride, kv_stride in rows
    ]
    return reference.MViT(
        spatial_size=size,
        temporal_size=frames,
        block_setting=settings,
        residual_pool=False,
        residual_with_cls_embed=False,
        rel_pos_embed=False,
        proj_after_attn=False,
        num_classes=7,
    )


def our_model(*, frames: int, size: tuple[int, int]) -> MViT:
    return MViT(
        num_classes=7,
        frames=frames,
        size=size,
        depth=5,
        channels=8,
        num_heads=1,
        q_strides=STRIDES,
        kv_stride=(2, 4, 4),
    )


def scramble(model: torch.nn.Module) -> None:
    """Give every parameter a value that matters: fresh norms and biases hide mistakes."""
    with torch.no_grad():
        for parameter in model.parameters():
            scale = 0.3 if parameter.ndim == 1 else parameter[0].numel() ** -0.5
            parameter.add_(torch.randn_like(parameter) * scale)


@pytest.mark.parametrize(
    ("frames", "size"), [(8, (32, 32)), (12, (36, 48)), (4, (64, 32))], ids=str
)
def test_logits_equal_torchvisions_at_other_sizes_and_strides(frames, size):
    torch.manual_seed(0)
    theirs = reference_model(frames=frames, size=size).eval()
    scramble(theirs)
    ours = our_model(frames=frames, size=size).eval()
    grid_size = ours.embed_thw(frames, *size)[1:]
    ours.load_state_dict(from_torchvision(theirs.state_dict(), grid_size=grid_size))
    video = torch.randn(2, 3, frames, *size)
    with torch.no_grad():
        expected = theirs(video)
        assert expected.std() > 0.01
        torch.testing.assert_close(ours(video), expected, rtol=0, atol=1e-4)


@pytest.mark.slow
def test_gradients_equal_torchvisions():
    torch.manual_seed(0)
    theirs = reference_model(frames=8, size=(32, 32)).eval().double()
    scramble(theirs)
    ours = our_model(frames=8, size=(32, 32)).eval().double()
    ours.load_state_dict(from_torchvision(theirs.state_dict()))
    video = torch.randn(2, 3, 8, 32, 32, dtype=torch.float64)
    theirs(video).square().sum().backward()
    ours(video).square().sum().backward()
    expected = from_torchvision({name: p.grad for name, p in theirs.named_parameters()})
    for name, parameter in ours.named_parameters():
        torch.testing.assert_close(parameter.grad, expected[name], rtol=1e-6, atol=1e-9, msg=name)


@pytest.mark.slow
def test_b16_logits_equal_torchvisions():
    torch.manual_seed(0)
    theirs = reference.mvit_v1_b().eval()
    scramble(theirs)
    with torch.device("meta"):
        ours = mvit_b16().eval()
    ours.load_state_dict(from_torchvision(theirs.state_dict()), assign=True)
    video = torch.randn(1, 3, 16, 224, 224)
    with torch.no_grad():
        expected = theirs(video)
        assert expected.std() > 0.01
        torch.testing.assert_close(ours(video), expected, rtol=0, atol=1e-4)
