"""Models with selectors, as small as they can be: tracing one takes seconds however small it is."""

from torch import nn

from tests.weights.models import scramble
from tokenselect.backbones.mvit import MViT
from tokenselect.backbones.video_swin import VideoSwin
from tokenselect.insertion import insert_selectors


def tiny_mvit(plan: str, *, method: str = "stts", scorer: str = "paper") -> nn.Module:
    model = MViT(
        num_classes=5,
        frames=8,
        size=(24, 32),
        depth=2,
        channels=8,
        num_heads=1,
        q_strides={1: (1, 2, 2)},
        kv_stride=(1, 2, 2),
    )
    return scramble(insert_selectors(model, plan, method=method, scorer=scorer))


def tiny_swin(plan: str, *, method: str = "stts", scorer: str = "paper") -> nn.Module:
    model = VideoSwin(
        num_classes=5,
        frames=8,
        size=(24, 24),
        channels=8,
        depths=(2, 1),
        num_heads=(1, 2),
        window=(4, 3, 4),
    )
    return scramble(insert_selectors(model, plan, method=method, scorer=scorer))
