"""Video transformers as their authors published them: VideoMAE V2, InternVideo2 and Hiera."""

import math
from typing import Any, cast

import torch
from torch import nn

from tokenselect.adapters.adapter import Arguments, SequenceAdapter, need_mean_pooling
from tokenselect.grid import TokenGrid
from tokenselect.plan import THW


class VideoMAEv2Adapter(SequenceAdapter):
    """`VisionTransformer` of VideoMAE and VideoMAE V2, `models/modeling_finetune.py`."""

    is_sequence = True

    def __init__(self, model: nn.Module) -> None:
        super().__init__(model)
        need_mean_pooling(model.fc_norm is not None)

    def embed_thw(self, model: nn.Module) -> THW | None:
        patches = cast(Any, model.patch_embed)
        sides = zip(patches.img_size, patches.patch_size, strict=True)
        h, w = (size // patch for size, patch in sides)
        return patches.num_patches // (h * w), h, w


class InternVideo2Adapter(SequenceAdapter):
    """`InternVideo2`, `single_modality/models/internvideo2.py`.

    With its fused norms, blocks pass two tensors on: a branch and the sum of those before. Both
    are cut alike: a token is then the two side by side.
    """

    is_sequence = True
    num_prefix = 1

    def __init__(self, model: nn.Module) -> None:
        super().__init__(model)
        self.is_fused = bool(cast(Any, model.blocks)[0].use_fused_rmsnorm)

    def channels(self, block: nn.Module) -> int:
        """Give the width of a token, which is two side by side with fused norms."""
        return (2 if self.is_fused else 1) * super().channels(block)

    def embed_thw(self, model: nn.Module) -> THW | None:
        return cast(Any, model.patch_embed).grid_size

    def read(self, arguments: Arguments, thw: THW | None) -> TokenGrid:
        """Lay the tokens out, beside what was summed up before."""
        assert thw is not None
        tokens, residual = arguments.get(0, "x"), arguments.get(1, "residual")
        if self.is_fused:  # nothing was summed up before block 0
            other = torch.zeros_like(tokens) if residual is None else residual
            tokens = torch.cat([tokens, other], dim=-1)
        return TokenGrid(tokens, thw, self.num_prefix)

    def write(self, grid: TokenGrid, arguments: Arguments) -> Arguments:
        if not self.is_fused:
            return super().write(grid, arguments)
        tokens, residual = grid.tokens.chunk(2, dim=-1)
        return arguments.put(0, "x", tokens).put(1, "residual", residual)


class HieraAdapter(SequenceAdapter):
    """`hiera.Hiera`, for videos and, with one frame, for images.

    A token is a mask unit: the patches that become one token at the end. Early blocks attend within
    units, so any set of them may stay.
    """

    is_sequence = True

    def __init__(self, model: nn.Module) -> None:
        super().__init__(model)
        if math.prod(cast(Any, model).q_stride) ** cast(int, model.q_pool) != model.mu_size:
            raise ValueError(
                "Hiera whose units do not become single tokens is not supported: q_stride to the "
                f"power of q_pool must be mask_unit_size, got {model.q_stride}, {model.q_pool} and "
                f"{model.mask_unit_size}"
            )

    def stage_starts(self, model: nn.Module) -> tuple[int, ...]:
        return (0, *(end + 1 for end in cast(list[int], model.stage_ends)[:-1]))

    def channels(self, block: nn.Module) -> int:
        """Give the width of a unit: that of its patches, side by side."""
        attention = cast(Any, block.attn)
        return attention.q_stride * attention.window_size * super().channels(block)

    def out_channels(self, block: nn.Module) -> int:
        return cast(Any, block).dim_out * cast(Any, block.attn).window_size

    def embed_thw(self, model: nn.Module) -> THW | None:
        shape = cast(list[int], model.mask_spatial_shape)
        t, h, w = (1, *shape) if len(shape) == 2 else shape
        return t, h, w

    def read(self, arguments: Arguments, thw: THW | None) -> TokenGrid:
        """Put the patches of each unit side by side; they come unit by unit last."""
        assert thw is not None
        tokens = arguments.get(0, "x").unflatten(1, (-1, math.prod(thw)))  # (b, patches, units, c)
        return TokenGrid(tokens.transpose(1, 2).flatten(2), thw)

    def write(self, grid: TokenGrid, arguments: Arguments) -> Arguments:
        width = arguments.get(0, "x").shape[-1]
        patches = grid.tokens.unflatten(2, (-1, width)).transpose(1, 2)
        return arguments.put(0, "x", patches.flatten(1, 2))
