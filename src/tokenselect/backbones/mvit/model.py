"""MViT: a video transformer whose grid shrinks and whose channels grow from stage to stage."""

import math
from collections.abc import Mapping
from typing import Any

import torch
import torch.nn.functional as F
from torch import Tensor, nn

from tokenselect.backbones import fast_cpu
from tokenselect.backbones.layers import check_video, init_carrying
from tokenselect.backbones.mvit.block import Block
from tokenselect.backbones.mvit.weights import resize_tables
from tokenselect.backbones.preset import Backbone, preset
from tokenselect.grid import TokenGrid
from tokenselect.plan import THW


class Positions(nn.Module):
    """Add places to patches and put the class token before them.

    A grid of another size than the tables' `thw` gets them interpolated, so a model runs on clips
    of any length and size.
    """

    def __init__(self, thw: THW, channels: int) -> None:
        super().__init__()
        t, h, w = thw
        self.class_token = nn.Parameter(torch.zeros(channels))
        self.class_position = nn.Parameter(torch.zeros(channels))
        self.space = nn.Parameter(torch.zeros(h, w, channels))
        self.time = nn.Parameter(torch.zeros(t, channels))
        for table in self.parameters():
            nn.init.trunc_normal_(table, std=0.02)

    def forward(self, patches: Tensor, *, out: Tensor | None = None) -> Tensor:
        """Turn (b, t, h, w, c) patches into (b, 1 + t·h·w, c) tokens; `out` takes them."""
        t, h, w = patches.shape[1:4]
        space, time = resize_tables(self.space, self.time, (t, h, w))
        first = self.class_token + self.class_position
        if out is None:
            tokens = patches.flatten(1, 3) + (space + time[:, None, None]).flatten(0, 2)
            return torch.cat([first.expand(tokens.shape[0], 1, -1), tokens], dim=1)
        out[:, 0] = first
        places = out[:, 1:].unflatten(1, (t, h, w))
        torch.add(patches, space, out=places).add_(time[:, None, None])
        return out


class MViT(Backbone):
    """Multiscale Vision Transformer of the first version (Fan et al., section 3.2).

    A stage begins at every block of `q_strides`: there the grid shrinks by the stride, and channels
    and heads double. (The MLP of the block before already makes the new channels.)

    Args:
        frames: frames of the clips the position tables are made for; other lengths run too.
        size: height and width of those clips; other sizes run too.
        depth: number of blocks.
        channels: of the first stage, as is num_heads.
        q_strides: block index → pooling steps in time, rows and columns.
        kv_stride: pooling steps of keys and values in the first stage; each stage divides them by
            its q stride, so that their grid stays the same.
        pool_kernel: sides of the pooling kernels, odd.
        patch_kernel: frames, rows and columns that make a token.
        patch_stride: steps between tokens.
        mlp_ratio: hidden channels of the MLPs, as a multiple of their input's.
        drop_path: chance of leaving out the last block's branches in training; it grows in a line
            from 0 at the first block.
    """

    def __init__(
        self,
        *,
        num_classes: int,
        frames: int,
        size: tuple[int, int],
        depth: int,
        channels: int,
        num_heads: int,
        q_strides: Mapping[int, THW],
        kv_stride: THW,
        pool_kernel: THW = (3, 3, 3),
        patch_kernel: THW = (3, 7, 7),
        patch_stride: THW = (2, 4, 4),
        mlp_ratio: float = 4.0,
        drop_path: float = 0.0,
        dropout: float = 0.0,
    ) -> None:
        super().__init__()
        outside = [index for index in q_strides if not 0 < index < depth]
        if outside:
            raise ValueError(f"q_strides must name blocks from 1 to {depth - 1}, got {outside}")
        kt, kh, kw = patch_kernel
        padding = (kt // 2, kh // 2, kw // 2)
        self.patch_kernel = patch_kernel
        self.patch_stride = patch_stride
        self.default_input = (frames, *size)
        self.stage_starts = (0, *sorted(q_strides))
        self.patch = nn.Conv3d(3, channels, patch_kernel, patch_stride, padding)
        self.positions = Positions(self.embed_thw(frames, *size), channels)
        self.blocks = nn.ModuleList()
        for index in range(depth):
            q_stride = q_strides.get(index, (1, 1, 1))
            t, h, w = (max(kv // q, 1) for kv, q in zip(kv_stride, q_stride, strict=True))
            kv_stride = (t, h, w)
            if index in q_strides:
                num_heads *= 2
            out_channels = 2 * channels if index + 1 in q_strides else channels
            block = Block(
                channels,
                out_channels,
                num_heads=num_heads,
                q_stride=q_stride,
                kv_stride=kv_stride,
                kernel=pool_kernel,
                mlp_ratio=mlp_ratio,
                drop_path=drop_path * index / max(depth - 1, 1),
            )
            self.blocks.append(block)
            channels = out_channels
        self.add_head(channels, num_classes, dropout=dropout, eps=1e-6)
        init_carrying(*(block.widen for block in self.blocks))  # type: ignore[arg-type]

    def embed(self, video: Tensor) -> TokenGrid:
        """Turn (b, 3, frames, height, width) clips into tokens that carry their places."""
        check_video(video)
        thw = self.embed_thw(*video.shape[2:])
        is_fast = fast_cpu.is_cpu_inference(video)
        if not (is_fast and fast_cpu.is_untouched(self.patch, self.positions)):
            patches = self.patch(video).permute(0, 2, 3, 4, 1).contiguous()
            return TokenGrid(self.positions(patches), thw, num_prefix=1)
        size = (len(video), 1 + math.prod(thw), self.patch.out_channels)
        tokens = fast_cpu.fill_in_parts(
            lambda clips, out: self.positions(cut_patches(clips, self.patch), out=out),
            video,
            out=video.new_empty(size),
            at_once=fast_cpu.clips_at_once(math.prod(size[1:])),
        )
        return TokenGrid(tokens, thw, num_prefix=1)

    def forward(self, video: Tensor) -> Tensor:
        """Map (b, 3, frames, height, width) clips to (b, num_classes) logits.

        Inference leaves out the last block's patches, which the head does not read.
        """
        grid = self.embed(video)
        *blocks, last = self.blocks
        for block in blocks:
            grid = block(grid)
        is_fast = fast_cpu.is_cpu_inference(grid.tokens) or fast_cpu.is_traced_inference()
        if is_fast and not self.training and type(last) is Block and fast_cpu.is_untouched(last):
            return self._classify(last.class_tokens(grid))
        return self.head(last(grid))

    def head(self, grid: TokenGrid) -> Tensor:
        """Classify the class token: (b, num_classes) logits."""
        return self._classify(grid.tokens)

    def _classify(self, tokens: Tensor) -> Tensor:
        return self.classifier(self.dropout(self.norm(tokens[:, 0])))

    def embed_thw(self, frames: int, height: int, width: int) -> THW:
        """Return the size of the grid that `embed` makes of clips of this size."""
        sides = zip((frames, height, width), self.patch_kernel, self.patch_stride, strict=True)
        t, h, w = ((side + 2 * (reach // 2) - reach) // step + 1 for side, reach, step in sides)
        return t, h, w

    def no_weight_decay_names(self) -> set[str]:
        """Return the parameters that weight decay should spare although they are not 1-d."""
        return {f"positions.{name}" for name, _ in self.positions.named_parameters()}


def cut_patches(video: Tensor, patch: nn.Conv3d) -> Tensor:
    """Turn (b, 3, frames, height, width) clips into (b, t, h, w, c) patches, without calling it.

    A kernel that lies channels last makes the convolution write them so.
    """
    kernel = patch.weight.contiguous(memory_format=torch.channels_last_3d)
    patches = F.conv3d(video, kernel, patch.bias, patch.stride, patch.padding)
    return patches.permute(0, 2, 3, 4, 1).contiguous()


@preset(num_classes=400, frames=16, size=224, drop_path=0.2, dropout=0.5)
def mvit_b16(**options: Any) -> MViT:
    """MViT-B of 16 frames with a stride of 4: 36.6 M parameters, 70.6 GMACs per view."""
    q_strides = dict.fromkeys((1, 3, 14), (1, 2, 2))
    return MViT(
        depth=16, channels=96, num_heads=1, q_strides=q_strides, kv_stride=(1, 8, 8), **options
    )


@preset(num_classes=400, frames=32, size=224, drop_path=0.3, dropout=0.5)
def mvit_b16_32x3(**options: Any) -> MViT:
    """MViT-B of 32 frames with a stride of 3: the same blocks on twice the tokens."""
    return mvit_b16(**options)


@preset(num_classes=400, frames=16, size=64, drop_path=0.0, dropout=0.0)
def mvit_mini(**options: Any) -> MViT:
    """MViT for tests and small data on a CPU: 0.5 M parameters, 0.25 GMACs per view.

    Most of its blocks work on the 8 × 8 grid, where a region still has something to cut. Keys and
    values are pooled by 4 where MViT-B16 pools by 8: small pictures would lose what is small in
    them.
    """
    return MViT(
        depth=8,
        channels=24,
        num_heads=1,
        q_strides=dict.fromkeys((1, 6), (1, 2, 2)),
        kv_stride=(1, 4, 4),
        patch_kernel=(3, 5, 5),
        **options,
    )
