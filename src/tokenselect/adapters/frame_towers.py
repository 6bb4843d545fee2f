"""Image towers that encode a clip frame by frame: CLIP, SigLIP, X-CLIP and timm's ViT.

Their batch holds frames: (b·t, 3, height, width). `model.config.num_frames` (`model.num_frames` for
timm) says how many of them are one clip; where it is not set, the whole batch is. Frame selection
makes the batch smaller, so outputs have a row for each frame that is left.
"""

from collections.abc import Sequence
from typing import Any, cast

from torch import Tensor, nn

from tokenselect.adapters import adapter
from tokenselect.adapters.adapter import Arguments, Changes, OtherAttribute, SequenceAdapter
from tokenselect.grid import TokenGrid
from tokenselect.plan import THW, SelectionPlan

ANY_LENGTH = 4096  # frames; stands for a clip of any length where a plan is checked


class FrameTowerAdapter(SequenceAdapter):
    """What they have in common: blocks map (b·t, f + h·w, c) to the same. Serves SigLIP, too."""

    num_frame_prefix = 0
    norm = "layer_norm1"
    argument = "hidden_states"

    def __init__(self, model: nn.Module) -> None:
        super().__init__(model)
        self.num_frames: int | None = getattr(getattr(model, "config", model), "num_frames", None)

    def hw(self, model: nn.Module) -> tuple[int, int]:
        """Give the rows and columns of patches of a frame."""
        config = cast(Any, model.config)
        config = getattr(config, "vision_config", config)
        side = config.image_size // config.patch_size
        return side, side

    def embed_thw(self, model: nn.Module) -> THW | None:
        return self.num_frames or ANY_LENGTH, *self.hw(model)

    def blocks(self, model: nn.Module) -> Sequence[nn.Module]:
        tower = getattr(model, "vision_model", model)
        return tuple(cast(Any, tower).encoder.layers)

    def read(self, arguments: Arguments, thw: THW | None) -> TokenGrid:
        """Put the frames of each clip one after the other."""
        assert thw is not None
        tokens: Tensor = arguments.get(0, self.argument)
        t = len(tokens) if self.num_frames is None else thw[0]
        if len(tokens) % t:
            raise ValueError(
                f"a batch must hold whole clips of num_frames={self.num_frames}, of which {t} "
                f"frames are left here; got {len(tokens)} frames"
            )
        clips = tokens.unflatten(0, (-1, t)).flatten(1, 2)  # (b, t·(f + h·w), c)
        return TokenGrid(clips, (t, *thw[1:]), num_frame_prefix=self.num_frame_prefix)

    def write(self, grid: TokenGrid, arguments: Arguments) -> Arguments:
        return arguments.put(0, self.argument, grid.frames.flatten(0, 1))


class ClipAdapter(FrameTowerAdapter):
    """`transformers.CLIPVisionModel` and `CLIPVisionModelWithProjection`."""

    num_frame_prefix = 1

    def class_attention(self, block: nn.Module, grid: TokenGrid) -> Tensor:
        frames = cast(nn.Module, block.layer_norm1)(grid.frames)  # (b, t, 1 + n, c)
        return adapter.class_attention(block.self_attn, frames).unflatten(2, grid.thw[1:])


class XClipAdapter(ClipAdapter):
    """`transformers.XCLIPVisionModel`; its layers pass messages between `num_frames` frames.

    `XCLIPModel` counts on all frames behind the tower: there each frame is a clip of its own, so
    regions can be selected, and frames cannot.
    """

    def __init__(self, model: nn.Module) -> None:
        super().__init__(model)
        if hasattr(model, "vision_model"):
            self.num_frames = 1

    def attach(self, model: nn.Module, plan: SelectionPlan, grids: Sequence[THW]) -> Changes:
        """Tell each layer how many frames are left."""
        if self.num_frames == 1:
            return ()
        pairs = zip(self.blocks(model), grids, strict=True)
        return [OtherAttribute(layer, "num_frames", t) for layer, (t, _, _) in pairs]


class TimmAdapter(FrameTowerAdapter):
    """`timm.models.vision_transformer.VisionTransformer`, with or without class tokens."""

    blocks = SequenceAdapter.blocks
    norm = "norm1"
    argument = "x"

    def __init__(self, model: nn.Module) -> None:
        super().__init__(model)
        self.num_frame_prefix = cast(int, model.num_prefix_tokens)

    def hw(self, model: nn.Module) -> tuple[int, int]:
        """Give the rows and columns of patches of a frame."""
        return cast(Any, model.patch_embed).grid_size
