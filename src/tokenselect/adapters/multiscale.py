"""Models whose grid changes from stage to stage: ours, MViT of three libraries, and Swin3D."""

from collections.abc import Sequence
from itertools import accumulate
from typing import Any, cast

import torch.nn.functional as F
from torch import Tensor, nn

from tokenselect.adapters.adapter import Arguments, Changes, SequenceAdapter
from tokenselect.grid import TokenGrid
from tokenselect.plan import THW, SelectionPlan


class OwnAdapter(SequenceAdapter):
    """Reads and writes nothing but the grid itself."""

    def stage_starts(self, model: nn.Module) -> tuple[int, ...]:
        return cast(tuple[int, ...], model.stage_starts)

    def channels(self, block: nn.Module) -> int:
        return cast(int, block.in_channels)

    def read(self, arguments: Arguments, thw: THW | None) -> TokenGrid:
        return arguments.get(0, "grid")

    def write(self, grid: TokenGrid, arguments: Arguments) -> Arguments:
        return arguments.put(0, "grid", grid)

    def embed_thw(self, model: nn.Module) -> THW | None:
        return model.embed_thw(*model.default_input)  # type: ignore[operator, misc]

    def out_thw(self, block: nn.Module, thw: THW) -> THW:
        return block.out_thw(thw)  # type: ignore[operator]

    def has_class_attention(self, block: nn.Module) -> bool:
        return hasattr(block, "class_attention")

    def class_attention(self, block: nn.Module, grid: TokenGrid) -> Tensor:
        return block.class_attention(grid)  # type: ignore[operator]


class MViTAdapter(SequenceAdapter):
    """What the libraries have in common: the grid travels with the tokens."""

    num_prefix = 1
    thw_name: str

    def stage_starts(self, model: nn.Module) -> tuple[int, ...]:
        """Give block 0 and the blocks that pool their queries."""
        pools = [_query_pool(block) for block in self.blocks(model)]
        return (0, *(i for i, pool in enumerate(pools) if i and pool and max(pool.stride) > 1))

    def read(self, arguments: Arguments, thw: THW | None) -> TokenGrid:
        """Join tokens and grid, both arguments of the block."""
        t, h, w = arguments.get(1, self.thw_name)
        return TokenGrid(arguments.get(0, "x"), (t, h, w), self.num_prefix)

    def write(self, grid: TokenGrid, arguments: Arguments) -> Arguments:
        """Put tokens and grid back, the grid as a list where it was one."""
        before = arguments.get(1, self.thw_name)
        arguments = arguments.put(0, "x", grid.tokens)
        return arguments.put(1, self.thw_name, type(before)(grid.thw))

    def out_thw(self, block: nn.Module, thw: THW) -> THW:
        pool = _query_pool(block)
        if pool is None:
            return thw
        sides = zip(thw, pool.kernel_size, pool.stride, pool.padding, strict=True)
        t, h, w = ((side + 2 * pad - kernel) // step + 1 for side, kernel, step, pad in sides)
        return t, h, w


class TorchvisionMViTAdapter(MViTAdapter):
    """`torchvision.models.video.mvit_v1_b` and `mvit_v2_s`.

    The relative positions of v2 are resized to the smaller grid by its own blocks, as they are for
    smaller videos.
    """

    thw_name = "thw"

    def embed_thw(self, model: nn.Module) -> THW | None:
        encoding = cast(Any, model.pos_encoding)
        return encoding.temporal_size, *encoding.spatial_size

    def has_class_attention(self, block: nn.Module) -> bool:
        """Tell whether the block normalizes tokens one by one, as all but custom ones do."""
        return not block.needs_transposal

    def class_attention(self, block: nn.Module, grid: TokenGrid) -> Tensor:
        """Compute the attention again; a pooled key's share stands at the places nearest to it."""
        attention = cast(Any, block.attn)
        tokens = cast(nn.Module, block.norm1)(grid.tokens)
        heads = (3, attention.num_heads, attention.head_dim)
        q, k, _ = attention.qkv(tokens).unflatten(2, heads).transpose(1, 3).unbind(2)
        q, thw = (q, grid.thw) if attention.pool_q is None else attention.pool_q(q, grid.thw)
        k, keys = (k, grid.thw) if attention.pool_k is None else attention.pool_k(k, grid.thw)
        logits = attention.scaler * q[:, :, :1] @ k.transpose(2, 3)  # (b, heads, 1, 1 + keys)
        shares = logits.softmax(dim=-1).mean(dim=1)[:, :, 1:].unflatten(2, keys)
        return F.interpolate(shares, size=thw, mode="nearest-exact").squeeze(1)


class PytorchvideoMViTAdapter(MViTAdapter):
    """`pytorchvideo.models.create_multiscale_vision_transformers`, with or without class token."""

    thw_name = "thw_shape"

    def __init__(self, model: nn.Module) -> None:
        super().__init__(model)
        self.num_prefix = int(cast(Any, model.cls_positional_encoding).cls_embed_on)

    def embed_thw(self, model: nn.Module) -> THW | None:
        shape = cast(Any, model.cls_positional_encoding).patch_embed_shape
        t, h, w = shape() if callable(shape) else shape  # a property up to version 0.1.5
        return t, h, w


class SlowFastMViTAdapter(MViTAdapter):
    """MViT v1 and v2 of SlowFast, with or without class token."""

    thw_name = "thw_shape"
    takes_list = True

    def __init__(self, model: nn.Module) -> None:
        super().__init__(model)
        if model.enable_rev or model.enable_detection:
            raise ValueError(
                "SlowFast's reversible and detecting MViT need all tokens; only the plain "
                "classifier is supported"
            )
        self.num_prefix = int(cast(bool, model.cls_embed_on))

    def embed_thw(self, model: nn.Module) -> THW | None:
        return cast(THW, tuple(cast(list[int], model.patch_dims)))


def _query_pool(block: nn.Module) -> Any:
    """Give the convolution or pooling layer of the queries, or None."""
    pool = getattr(block.attn, "pool_q", None)
    return getattr(pool, "pool", pool)  # torchvision wraps it


class TorchvisionSwinAdapter(SequenceAdapter):
    """`torchvision.models.video.swin3d_t`, `swin3d_s` and `swin3d_b`.

    A site before the first block of a stage comes after the merging of patches.
    """

    def __init__(self, model: nn.Module) -> None:
        super().__init__(model)
        self.merged_after = [stage[-1] for stage in _stages(model)[:-1]]

    def blocks(self, model: nn.Module) -> Sequence[nn.Module]:
        return tuple(block for stage in _stages(model) for block in stage)

    def stage_starts(self, model: nn.Module) -> tuple[int, ...]:
        return (0, *accumulate(len(stage) for stage in _stages(model)[:-1]))

    def read(self, arguments: Arguments, thw: THW | None) -> TokenGrid:
        return TokenGrid.from_patches(arguments.get(0, "x"))

    def write(self, grid: TokenGrid, arguments: Arguments) -> Arguments:
        return arguments.put(0, "x", grid.patches)

    def out_thw(self, block: nn.Module, thw: THW) -> THW:
        t, h, w = thw
        is_last = any(block is last for last in self.merged_after)
        return (t, -(-h // 2), -(-w // 2)) if is_last else thw

    def attach(self, model: nn.Module, plan: SelectionPlan, grids: Sequence[THW]) -> Changes:
        """Watch the blocks behind the first region: they must not fall below the window."""
        regions = [site.block for site in plan if site.kind == "S"]
        behind = self.blocks(model)[min(regions) :] if regions else ()
        return [block.register_forward_pre_hook(refuse_small_frames) for block in behind]


def refuse_small_frames(block: nn.Module, arguments: tuple[Any, ...]) -> None:
    """Refuse frames smaller than the window: there the block looks its relative biases up wrongly.

    It reads the first t·h·w rows and columns of a table made for the full window, which are those
    of other offsets unless rows and columns are complete. Fewer frames do no harm.
    """
    h, w = arguments[0].shape[2:4]
    _, rows, columns = cast(Any, block.attn).window_size
    if h < rows or w < columns:
        raise ValueError(
            f"region selection left frames of {h}×{w} patches for a block with windows of "
            f"{rows}×{columns}; torchvision's Swin3D reads wrong relative biases there: keep "
            "larger regions, select frames only, or use tokenselect's video_swin models"
        )


def _stages(model: nn.Module) -> list[nn.Sequential]:
    """List the stages, without the merging between them."""
    children = cast(nn.Sequential, model.features)
    return [stage for stage in children if isinstance(stage, nn.Sequential)]
