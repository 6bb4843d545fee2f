"""Video Swin Transformer: attention in windows, grids that halve and channels that double."""

import math
from itertools import accumulate
from typing import Any

import torch.nn.functional as F
from einops import rearrange
from torch import Tensor, nn

from tokenselect.backbones.layers import check_video, init_carrying
from tokenselect.backbones.preset import Backbone, preset
from tokenselect.backbones.video_swin.block import Block
from tokenselect.grid import TokenGrid
from tokenselect.plan import THW


class PatchEmbedding(nn.Module):
    """Make a token of every `patch` frames, rows and columns; sides are padded to whole patches."""

    def __init__(self, channels: int, *, patch: THW) -> None:
        super().__init__()
        self.patch = patch
        self.project = nn.Linear(3 * math.prod(patch), channels)
        self.norm = nn.LayerNorm(channels)

    def forward(self, video: Tensor) -> Tensor:
        """Map (b, 3, frames, height, width) clips to (b, t, h, w, c) patches."""
        sides = zip(video.shape[2:], self.patch, strict=True)
        frames, rows, columns = (-side % step for side, step in sides)
        if frames or rows or columns:
            video = F.pad(video, (0, columns, 0, rows, 0, frames))
        i, j, k = self.patch
        pixels = rearrange(video, "b c (t i) (h j) (w k) -> b t h w (c i j k)", i=i, j=j, k=k)
        return self.norm(self.project(pixels))

    def out_thw(self, frames: int, height: int, width: int) -> THW:
        """Return the size of the grid made of clips of this size."""
        sides = zip((frames, height, width), self.patch, strict=True)
        t, h, w = (math.ceil(side / step) for side, step in sides)
        return t, h, w


class VideoSwin(Backbone):
    """Video Swin Transformer (Liu et al., section 3).

    All stages' blocks stand in one list. The last block of a stage merges patches at its end, so
    that the first block of a stage is given the stage's own grid.

    Args:
        num_classes: classes of the head.
        frames: frames of the clips the model is meant for; other lengths run too.
        size: height and width of those clips; other sizes run too.
        channels: channels of the first stage; they double from stage to stage.
        depths: blocks of each stage; every second block shifts its windows.
        num_heads: heads of each stage.
        window: largest sides of a window, in tokens.
        patch: frames, rows and columns that make a token.
        fit_windows: fit the windows to grids that they do not divide, rather than pad the grid to
            whole windows as the original does; where they do divide it, it makes no difference.
        mlp_ratio: hidden channels of the MLPs, as a multiple of their input's.
        drop_path: chance of leaving out the last block's branches in training; it grows in a line
            from 0 at the first block.
        dropout: dropout before the classifier.
    """

    def __init__(
        self,
        *,
        num_classes: int,
        frames: int,
        size: tuple[int, int],
        channels: int,
        depths: tuple[int, ...],
        num_heads: tuple[int, ...],
        window: THW = (8, 7, 7),
        patch: THW = (2, 4, 4),
        fit_windows: bool = True,
        mlp_ratio: float = 4.0,
        drop_path: float = 0.0,
        dropout: float = 0.0,
    ) -> None:
        super().__init__()
        if len(depths) != len(num_heads) or min(depths) < 1:
            raise ValueError(f"depths {depths} and num_heads {num_heads} need one value per stage")
        self.default_input = (frames, *size)
        self.stage_starts = (0, *accumulate(depths[:-1]))
        self.embedding = PatchEmbedding(channels, patch=patch)
        self.blocks = nn.ModuleList()
        for stage, (depth, heads) in enumerate(zip(depths, num_heads, strict=True)):
            for index in range(depth):
                block = Block(
                    channels * 2**stage,
                    num_heads=heads,
                    window=window,
                    is_shifted=index % 2 == 1,
                    merges=index == depth - 1 and stage < len(depths) - 1,
                    fit_windows=fit_windows,
                    mlp_ratio=mlp_ratio,
                    drop_path=drop_path * len(self.blocks) / max(sum(depths) - 1, 1),
                )
                self.blocks.append(block)
        channels = channels * 2 ** (len(depths) - 1)
        self.add_head(channels, num_classes, dropout=dropout, eps=1e-5)
        merging = (block.merging for block in self.blocks if block.merging is not None)
        init_carrying(*(module.reduce for module in merging))  # type: ignore[union-attr,arg-type]

    def embed(self, video: Tensor) -> TokenGrid:
        """Turn (b, 3, frames, height, width) clips into tokens."""
        check_video(video)
        return TokenGrid.from_patches(self.embedding(video))

    def head(self, grid: TokenGrid) -> Tensor:
        """Classify the average token: (b, num_classes) logits."""
        clip = self.norm(grid.tokens).mean(dim=1)  # (b, c)
        return self.classifier(self.dropout(clip))

    def embed_thw(self, frames: int, height: int, width: int) -> THW:
        """Return the size of the grid that `embed` makes of clips of this size."""
        return self.embedding.out_thw(frames, height, width)

    def no_weight_decay_names(self) -> set[str]:
        """Return the parameters that weight decay should spare although they are not 1-d."""
        return {name for name, _ in self.named_parameters() if name.endswith("bias_table")}


_LARGE = {"num_classes": 400, "frames": 32, "size": 224, "fit_windows": True, "dropout": 0.5}


@preset(**_LARGE, drop_path=0.1)
def video_swin_t(**options: Any) -> VideoSwin:
    """Video Swin-T: 28.2 M parameters, 87.8 GMACs per view."""
    return VideoSwin(channels=96, depths=(2, 2, 6, 2), num_heads=(3, 6, 12, 24), **options)


@preset(**_LARGE, drop_path=0.1)
def video_swin_s(**options: Any) -> VideoSwin:
    """Video Swin-S: 49.8 M parameters, 165.7 GMACs per view."""
    return VideoSwin(channels=96, depths=(2, 2, 18, 2), num_heads=(3, 6, 12, 24), **options)


@preset(**_LARGE, window=(8, 7, 7), drop_path=0.2)
def video_swin_b(**options: Any) -> VideoSwin:
    """Video Swin-B as trained on Kinetics: 88.0 M parameters, 281.3 GMACs per view."""
    return VideoSwin(channels=128, depths=(2, 2, 18, 2), num_heads=(4, 8, 16, 32), **options)


@preset(**_LARGE | {"num_classes": 174}, drop_path=0.4)
def video_swin_b_w16(**options: Any) -> VideoSwin:
    """Video Swin-B as trained on Something-Something V2: windows of 16 token frames."""
    return video_swin_b(window=(16, 7, 7), **options)


@preset(num_classes=400, frames=16, size=64, fit_windows=True, drop_path=0.0, dropout=0.0)
def video_swin_mini(**options: Any) -> VideoSwin:
    """Video Swin for tests and small data on a CPU; its windows span all 8 token frames."""
    return VideoSwin(
        channels=32, depths=(2, 4, 2), num_heads=(1, 2, 4), window=(8, 4, 4), **options
    )
