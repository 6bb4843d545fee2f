"""Our logits against torchvision's, with its weights under our names."""

import pytest
import torch

from benchmarks.torchvision_import import import_torchvision
from tokenselect.backbones.video_swin import VideoSwin, from_torchvision, video_swin_b

MICRO = {"num_classes": 5, "depths": (2, 3, 2), "num_heads": (1, 2, 4), "window": (4, 3, 3)}


def pair_of_micros(**changes) -> tuple[torch.nn.Module, VideoSwin]:
    """Build torchvision's and our model with the same weights, biases large enough to matter."""
    swin = import_torchvision("torchvision.models.video.swin_transformer")
    torch.manual_seed(0)
    theirs = swin.SwinTransformer3d(
        patch_size=[2, 4, 4],
        embed_dim=8,
        depths=list(MICRO["depths"]),
        num_heads=list(MICRO["num_heads"]),
        window_size=list(MICRO["window"]),
        num_classes=MICRO["num_classes"],
    ).eval()
    for weight in theirs.parameters():
        torch.nn.init.normal_(weight, std=0.3)
    ours = VideoSwin(frames=16, size=(48, 48), channels=8, **MICRO, **changes).eval()
    ours.load_state_dict(from_torchvision(theirs.state_dict()))
    return theirs, ours


@pytest.mark.parametrize(
    "clip",
    [
        (16, 48, 96),  # windows divide every stage's grid
        (6, 48, 48),  # one temporal window, smaller than the largest
        (15, 46, 46),  # frames and pixels that patches do not divide
    ],
)
def test_logits_equal_where_windows_divide_the_grid(clip):
    theirs, ours = pair_of_micros()
    video = torch.randn(2, 3, *clip)
    with torch.no_grad():
        torch.testing.assert_close(ours(video), theirs(video), atol=1e-4, rtol=1e-4)


@pytest.mark.parametrize("clip", [(16, 48, 72), (12, 60, 44), (20, 50, 83)])
def test_padded_windows_give_the_logits_of_the_original(clip):
    theirs, ours = pair_of_micros(fit_windows=False)
    video = torch.randn(2, 3, *clip)
    with torch.no_grad():
        torch.testing.assert_close(ours(video), theirs(video), atol=1e-4, rtol=1e-4)


def test_biases_follow_the_offset_where_torchvision_takes_the_wrong_ones():
    theirs, ours = pair_of_micros()
    video = torch.randn(1, 3, 8, 24, 16)  # the last grid has 2 rows and 1 column
    with torch.no_grad():
        assert not torch.allclose(ours(video), theirs(video), atol=1e-3)


@pytest.mark.slow
def test_logits_of_swin_b_equal_torchvisions():
    swin = import_torchvision("torchvision.models.video.swin_transformer")
    torch.manual_seed(0)
    with torch.device("meta"):  # the usual initialisation would take longer than the test
        theirs, ours = swin.swin3d_b(num_classes=11).eval(), video_swin_b(num_classes=11).eval()
    index = swin.ShiftedWindowAttention3d(1, [8, 7, 7], [0, 0, 0], 1).relative_position_index
    state = {
        name: torch.randn(weight.shape) / weight.shape[-1] ** 0.5
        if weight.is_floating_point()
        else index
        for name, weight in theirs.state_dict().items()
    }
    theirs.load_state_dict(state, assign=True)
    ours.load_state_dict(from_torchvision(state), assign=True)
    video = torch.randn(1, 3, 2, 224, 224)  # smaller sides take torchvision to wrong biases
    with torch.no_grad():
        torch.testing.assert_close(ours(video), theirs(video), atol=1e-4, rtol=1e-4)
