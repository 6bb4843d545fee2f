"""LLaVA-OneVision, and LLaVA-Video in its classes: selection of what the language model gets.

The tower and the pooling behind it count on all tokens of a frame, so sites come after both. A
video's last token, the mark of its end, always stays.
"""

import math
from collections.abc import Mapping, Sequence
from dataclasses import replace
from typing import Any, cast

import torch
from torch import Tensor, nn

from tokenselect.adapters.adapter import (
    CONTEXT,
    Arguments,
    Changes,
    OtherAttribute,
    context_of,
)
from tokenselect.adapters.language import (
    ATTENTION,
    PROMPT,
    LanguageAdapter,
    Prompts,
    ShrinkHook,
    ask,
    refuse_whole,
)
from tokenselect.grid import TokenGrid
from tokenselect.plan import CHILD, THW, SelectionPlan

VIDEO = "video"
USED = ("pixel_values", "pixel_values_videos", "image_sizes", "image_sizes_videos", "labels")


class LlavaAdapter(LanguageAdapter):
    """`transformers.LlavaOnevisionForConditionalGeneration`; images stay whole."""

    reads_end_attention = True
    num_more = 1

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
        """Give the width of the language model."""
        return self.width

    def end(self, model: nn.Module) -> nn.Module | None:
        """Run the site in `shrink`: the pooling is no module."""
        return None

    def whole_thw(self, size: THW) -> THW:
        """Give the pooled grid."""
        return size[0], math.ceil(size[1] / 2), math.ceil(size[2] / 2)

    def read_all(self, arguments: Arguments, thw: THW | None) -> Sequence[TokenGrid]:
        """Make each of the (v, t·n, c) videos a grid of its own."""
        videos, context = arguments.positional[0], context_of(arguments)
        _, h, w = self.whole_thw((1, self.side, self.side))
        prompts = context.get(PROMPT) or [None] * len(videos)
        grids = [
            TokenGrid(video[None], (video.shape[0] // (h * w), h, w), prompt=prompt).placed()
            for video, prompt in zip(videos, prompts, strict=True)
        ]
        return context[ATTENTION](grids) if ATTENTION in context else grids

    def write_all(self, grids: Sequence[TokenGrid], arguments: Arguments) -> Arguments:
        """Put the videos together again, and which of their tokens are left."""
        places = torch.cat([cast(Tensor, grid.positions) for grid in grids])
        return Arguments((torch.cat([grid.tokens for grid in grids]), places), arguments.named)

    def attach(self, model: nn.Module, plan: SelectionPlan, grids: Sequence[THW]) -> Changes:
        """Shrink the inputs of each forward that has a video; nobody else encodes one."""
        hook = model.register_forward_pre_hook(ShrinkHook(self), with_kwargs=True)
        base = cast(nn.Module, model.base_model)
        return [hook, OtherAttribute(base, "get_video_features", refuse_whole)]

    def shrink(
        self, model: nn.Module, inputs: Mapping[str, Any], prompt: Sequence[Tensor] | None = None
    ) -> dict[str, Any]:
        """Encode the videos, drop tokens of each, and close the prompt up."""
        pixels = inputs.get("pixel_values_videos")
        if pixels is None:
            return dict(inputs)
        base = cast(Any, model.base_model)
        text, encode = Prompts.of(base, inputs), type(base).get_video_features
        output = encode(base, pixels, return_dict=True)
        videos, end = output.pooler_output.split([output.pooler_output.shape[1] - 1, 1], dim=1)
        is_placeholder, length = text.types == 2, videos.shape[1] + 1
        if (found := int(is_placeholder.sum())) != length * len(videos):
            raise ValueError(
                f"input_ids must have {length} placeholders for each of {len(videos)} videos, got "
                f"{found} in all; were the inputs shrunk already?"
            )
        ends = length * torch.arange(1, len(videos) + 1, device=is_placeholder.device)
        context = ask(model, text, is_placeholder, ends, prompt)
        hook = cast(Any, getattr(model, CHILD)).site_hooks[0]
        tokens, places = hook(Arguments((videos,), {CONTEXT: context})).positional
        is_kept = torch.zeros(len(videos), length, dtype=torch.bool, device=places.device)
        is_kept = is_kept.scatter(1, places, True).index_fill(1, ends[:1] - 1, True)
        dropped = torch.zeros_like(is_placeholder)
        dropped[is_placeholder] = ~is_kept.flatten()
        outputs = {VIDEO: replace(output, pooler_output=torch.cat([tokens, end], dim=1))}
        if inputs.get("pixel_values") is not None:
            settings = {"batch_num_images": inputs.get("batch_num_images"), "return_dict": True}
            sizes = inputs["image_sizes"]
            outputs["image"] = base.get_image_features(inputs["pixel_values"], sizes, **settings)
        others = {name: value for name, value in inputs.items() if name not in USED}
        shorter = text.without(dropped, labels=inputs.get("labels"))
        return {**others, **shorter, "mm_encoder_outputs": outputs}
