"""LLaVA-OneVision and LLaVA-NeXT-Video: selection of what the language model gets.

The tower and the pooling behind it count on all tokens of a frame, so sites come after both. The
mark at the end of a video, where there is one, always stays.
"""

import math
from collections.abc import Mapping, Sequence
from importlib import import_module
from typing import Any, cast

import torch
from torch import Tensor, nn

from tokenselect.adapters import language
from tokenselect.adapters.adapter import CONTEXT, Arguments, Changes, OtherAttribute, context_of
from tokenselect.grid import TokenGrid
from tokenselect.plan import CHILD, THW, SelectionPlan


class LlavaAdapter(language.LanguageAdapter):
    """`transformers.LlavaOnevisionForConditionalGeneration`; images stay whole."""

    reads_end_attention = True
    num_more = 1  # the mark at the end of a video

    def __init__(self, model: nn.Module) -> None:
        super().__init__(model)
        config = cast(Any, model.config)
        self.width: int = config.text_config.hidden_size
        self.side: int = config.vision_config.image_size // config.vision_config.patch_size

    def blocks(self, model: nn.Module) -> Sequence[nn.Module]:
        """List the layers of the vision tower, which sites are counted by."""
        tower = cast(Any, model.base_model).vision_tower
        return tuple(getattr(tower, "vision_model", tower).encoder.layers)

    def channels(self, block: nn.Module) -> int:
        """Refuse sites inside the tower."""
        raise ValueError(
            "LLaVA pools whole frames behind its tower: select after it, at the site one more than "
            "its last layer (T26 or S26 for 26 layers)"
        )

    def out_channels(self, block: nn.Module) -> int:
        return self.width

    def end(self, model: nn.Module) -> nn.Module | None:
        """Run the site in `shrink`: the pooling is no module."""
        return None

    def whole_thw(self, size: THW) -> THW:
        return size[0], math.ceil(size[1] / 2), math.ceil(size[2] / 2)

    def read_all(self, arguments: Arguments, thw: THW | None) -> Sequence[TokenGrid]:
        """Make each of the (v, t·n, c) videos a grid of its own."""
        videos, context = arguments.positional[0], context_of(arguments)
        _, h, w = self.whole_thw((1, self.side, self.side))
        prompts = context.get(language.PROMPT) or [None] * len(videos)
        grids = [
            TokenGrid(video[None], (video.shape[0] // (h * w), h, w), prompt=prompt).placed()
            for video, prompt in zip(videos, prompts, strict=True)
        ]
        return context[language.ATTENTION](grids) if language.ATTENTION in context else grids

    def write_all(self, grids: Sequence[TokenGrid], arguments: Arguments) -> Arguments:
        """Put the videos together again, and which of their tokens are left."""
        places = torch.cat([cast(Tensor, grid.positions) for grid in grids])
        return Arguments((torch.cat([grid.tokens for grid in grids]), places), arguments.named)

    def attach(self, model: nn.Module, plan: SelectionPlan, grids: Sequence[THW]) -> Changes:
        """Shrink the inputs of each forward that has a video; nobody else encodes one."""
        hook = model.register_forward_pre_hook(self.shrink_call, with_kwargs=True)
        base = cast(nn.Module, model.base_model)
        return [hook, OtherAttribute(base, "get_video_features", language.refuse_whole)]

    def lengths(self, inputs: Mapping[str, Any], modality: str) -> list[int] | None:
        if modality == "image":
            return None
        num_videos, frames = inputs["pixel_values_videos"].shape[:2]
        size = self.whole_thw((frames, self.side, self.side))
        return [math.prod(size) + self.num_more] * num_videos

    def encode(
        self, model: nn.Module, inputs: Mapping[str, Any], modality: str, context: dict[Any, Any]
    ) -> tuple[Any, Tensor | None]:
        if modality == "image":
            settings = {n: inputs[n] for n in ("batch_num_images",) if inputs.get(n) is not None}
            encode = cast(Any, model.base_model).get_image_features
            sizes = inputs["image_sizes"]
            return encode(inputs["pixel_values"], sizes, return_dict=True, **settings), None
        output, places = self.encode_videos(model, inputs["pixel_values_videos"], context)
        lengths = self.lengths(inputs, modality) or []
        is_kept = torch.zeros(len(lengths), lengths[0], dtype=torch.bool, device=places.device)
        return output, is_kept.scatter(1, places, True).flatten()

    def encode_videos(
        self, model: nn.Module, pixels: Tensor, context: dict[Any, Any]
    ) -> tuple[Any, Tensor]:
        """Run tower, pooling and site: the output, and (v, k) which of a video's tokens stay."""
        base = cast(Any, model.base_model)
        output = type(base).get_video_features(base, pixels, return_dict=True)
        length = output.pooler_output.shape[1] - self.num_more
        videos, marks = output.pooler_output.split([length, self.num_more], dim=1)
        hook = cast(Any, getattr(model, CHILD)).site_hooks[0]
        tokens, places = hook(Arguments((videos,), {CONTEXT: context})).positional
        output.pooler_output = torch.cat([tokens, marks], dim=1)
        last = torch.arange(length, length + self.num_more, device=places.device)
        return output, torch.cat([places, last.expand(len(places), -1)], dim=1)

    def tower(self, model: nn.Module, sizes: Sequence[THW]) -> nn.Module:
        """Give tower, projector, pooling and site for one video of this size."""
        if len(sizes) != 1:
            raise ValueError(f"LLaVA's tower takes one video of fixed size, got {len(sizes)}")
        return LlavaTower(self, model, sizes[0])


class LlavaNextVideoAdapter(LlavaAdapter):
    """`transformers.LlavaNextVideoForConditionalGeneration`; images stay whole."""

    num_more = 0

    def __init__(self, model: nn.Module) -> None:
        super().__init__(model)
        self.stride: int = cast(Any, model.config).spatial_pool_stride

    def whole_thw(self, size: THW) -> THW:
        return size[0], size[1] // self.stride, size[2] // self.stride


class LlavaTower(nn.Module):
    """What LLaVA does to a video of `input_shape` before its language model sees it."""

    model: nn.Module  # whole; of its parts, the language model is no part of this

    def __init__(self, adapter: LlavaAdapter, model: nn.Module, size: THW) -> None:
        super().__init__()
        self.adapter, base = adapter, cast(Any, model.base_model)
        self.__dict__["model"] = model
        others = [part for name, part in base.named_children() if name != "language_model"]
        self.parts = nn.ModuleList([*others, getattr(model, CHILD)])
        vision = cast(Any, model.config).vision_config
        self.input_shape = (size[0], 3, vision.image_size, vision.image_size)
        capturing = import_module("transformers.utils.output_capturing")
        # transformers does so under a lock, which no graph takes in, when it first wants them
        capturing.maybe_install_capturing_hooks(base.vision_tower)

    def forward(self, frames: Tensor) -> tuple[Tensor, Tensor]:
        """Map (t, 3, height, width) frames to (k, c) tokens, and (k,) which of all they are."""
        output, places = self.adapter.encode_videos(self.model, frames[None], {})
        return output.pooler_output[0], places[0]
