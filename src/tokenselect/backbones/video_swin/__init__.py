"""Video Swin Transformers of any input size and frame count (Liu et al., CVPR 2022)."""

from tokenselect.backbones.video_swin.model import (
    VideoSwin,
    video_swin_b,
    video_swin_b_w16,
    video_swin_mini,
    video_swin_s,
    video_swin_t,
)
from tokenselect.backbones.video_swin.weights import (
    from_mmaction,
    from_torchvision,
    inflate_image,
    resize_biases,
)

__all__ = [
    "VideoSwin", "from_mmaction", "from_torchvision", "inflate_image", "resize_biases",
    "video_swin_b", "video_swin_b_w16", "video_swin_mini", "video_swin_s", "video_swin_t",
]  # fmt: skip
