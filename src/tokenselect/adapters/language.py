"""Keeping a language model in step with its vision tower: fewer placeholders, the same places.

The tower gives fewer tokens than the prompt has placeholders. `shrink` runs the tower, takes the
placeholders of dropped tokens out of the prompt, and leaves every other token the 3-D position it
had. Counts follow from the plan and the size of a video alone.
"""

import inspect
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from functools import partial
from itertools import accumulate
from typing import Any, cast

import torch
from torch import Tensor, nn

from tokenselect.adapters.adapter import CONTEXT, Adapter, Arguments, Named, Positional
from tokenselect.grid import TokenGrid
from tokenselect.plan import CHILD, THW

FINAL, PROMPT, ATTENTION = "final", "prompt", "attention"  # keys of the context
PIXELS = {"image": "pixel_values", "video": "pixel_values_videos"}
GRIDS = {"image": "image_grid_thw", "video": "video_grid_thw"}
USED = {  # inputs that a shorter prompt, or what the tower made of the pixels, replaces
    *("input_ids", "attention_mask", "mm_token_type_ids", "labels", "position_ids"),
    *("image_sizes", "image_sizes_videos", "second_per_grid_ts"),
    *PIXELS.values(),
    *GRIDS.values(),
}
IGNORED_LABEL = -100


class LanguageAdapter(Adapter):
    """What video-language models add: their prompt follows what is kept of their videos.

    Videos are of any size, one grid each, and the language model takes any sequence of tokens.
    """

    is_sequence = True
    is_ragged = True
    num_more = 0  # tokens of a video that are no patches

    def whole_thw(self, size: THW) -> THW:
        """Give the grid of a video of so many frames, rows and columns of patches."""
        raise NotImplementedError

    def lengths(self, inputs: Mapping[str, Any], modality: str) -> list[int] | None:
        """Count the placeholders of each image or video; None where all of them stay."""
        raise NotImplementedError

    def encode(
        self, model: nn.Module, inputs: Mapping[str, Any], modality: str, context: dict[Any, Any]
    ) -> tuple[Any, Tensor | None]:
        """Run the vision tower on all images, or all videos.

        Gives what the language model takes as `mm_encoder_outputs`, and which of the placeholders
        stay: (n,), or None for all.
        """
        raise NotImplementedError

    def positions(
        self, model: nn.Module, text: "Prompts", inputs: Mapping[str, Any]
    ) -> Tensor | None:
        """Give the (3, b, l) positions of the whole prompt, or None where tokens close up."""
        return None

    def tower(self, model: nn.Module, sizes: Sequence[THW]) -> nn.Module:
        """Give a module of the pixels of videos of these sizes, its shapes known beforehand.

        It has the shape of its input as `input_shape`, and returns the (k, c) tokens that the
        language model gets, (k,) which of all tokens they are, and features of earlier blocks.
        """
        raise NotImplementedError

    def shrink(
        self, model: nn.Module, inputs: Mapping[str, Any], prompt: Sequence[Tensor] | None = None
    ) -> dict[str, Any]:
        """Encode images and videos and take the placeholders of dropped tokens out of the prompt.

        Gives inputs for the model or its `generate`: `mm_encoder_outputs` in place of the pixels.
        """
        present = [name for name, pixels in PIXELS.items() if inputs.get(pixels) is not None]
        lengths = {modality: self.lengths(inputs, modality) for modality in present}
        if not any(lengths.values()):
            return dict(inputs)
        text, outputs = Prompts.of(model.base_model, inputs), {}
        dropped = torch.zeros_like(text.ids, dtype=torch.bool)
        for modality, counts in lengths.items():
            is_placeholder = text.types == (1 if modality == "image" else 2)
            found, total = int(is_placeholder.sum()), sum(counts or ())
            if counts is not None and found != total:
                raise ValueError(
                    f"input_ids must have a placeholder for each {modality} token, {total} by "
                    f"their sizes, got {found}; were the inputs shrunk already?"
                )
            context = ask(model, text, is_placeholder, counts or (), prompt)
            outputs[modality], mask = self.encode(model, inputs, modality, context)
            if mask is not None:
                dropped[is_placeholder] = ~mask
        positions = self.positions(model, text, inputs)
        others = {name: value for name, value in inputs.items() if name not in USED}
        shorter = text.without(dropped, positions, labels=inputs.get("labels"))
        return {**others, **shorter, "mm_encoder_outputs": outputs}

    def shrink_call(
        self, model: nn.Module, args: Positional, kwargs: Named
    ) -> tuple[Any, Named] | None:
        """Serve as forward pre-hook: the steps of `generate` after the first have no pixels."""
        names = list(inspect.signature(model.forward).parameters)
        inputs = {**dict(zip(names, args, strict=False)), **kwargs}
        if all(inputs.get(name) is None for name in PIXELS.values()):
            return None
        if inputs.get("past_key_values") is not None:
            refuse_whole()
        return (), self.shrink(model, inputs)


@dataclass(frozen=True)
class Prompts:
    """A batch of prompts: (b, l) ids, mask, and kinds of tokens (0 text, 1 image, 2 video)."""

    ids: Tensor
    mask: Tensor
    types: Tensor
    padding: int

    @classmethod
    def of(cls, base: Any, inputs: Mapping[str, Any]) -> "Prompts":
        """Read the prompts of a model's inputs."""
        ids = inputs.get("input_ids")
        if ids is None:
            raise ValueError("inputs must have input_ids: placeholders are found by them")
        mask, types = inputs.get("attention_mask"), inputs.get("mm_token_type_ids")
        config = base.config
        if types is None:
            types = (ids == config.image_token_id).int() + 2 * (ids == config.video_token_id).int()
        padding = getattr(config.get_text_config(), "pad_token_id", None)
        return cls(ids, torch.ones_like(ids) if mask is None else mask, types, padding or 0)

    def without(
        self, dropped: Tensor, positions: Tensor | None = None, *, labels: Tensor | None
    ) -> dict[str, Tensor]:
        """Take tokens out of each prompt and pad on the side where there was padding before.

        The others keep their (3, b, l) positions, if there are any, and else close up.
        """
        gone = dropped | (self.mask == 0)
        length = int((~gone).sum(dim=1).max())
        is_left = bool((self.mask[:, 0] == 0).any()) or not bool((self.mask == 0).any())
        order = gone.int().argsort(dim=1, descending=is_left, stable=True)
        order = order[:, -length:] if is_left else order[:, :length]
        is_padding = gone.gather(1, order)
        ids = self.ids.gather(1, order).masked_fill(is_padding, self.padding)
        mask = (~is_padding).to(self.mask.dtype)
        shorter = {"input_ids": ids, "attention_mask": mask}
        if positions is not None:
            spatial = positions[-3:].gather(2, order.expand(3, -1, -1))
            spatial = spatial.masked_fill(is_padding, 0)
            along = (mask.long().cumsum(1) - 1).masked_fill(is_padding, 0)
            shorter["position_ids"] = torch.cat([along[None], spatial])
            shorter["mm_token_type_ids"] = self.types.gather(1, order).masked_fill(is_padding, 0)
        if labels is not None:
            shorter["labels"] = labels.gather(1, order).masked_fill(is_padding, IGNORED_LABEL)
        return shorter


def ask(
    model: nn.Module,
    text: Prompts,
    is_placeholder: Tensor,
    lengths: Sequence[int],
    prompt: Sequence[Tensor] | None,
) -> dict[Any, Any]:
    """Begin a context with what the methods of the sites want to know of the prompt.

    `lengths` are the placeholders of each video, which lie one after the other.
    """
    selectors = cast(Any, getattr(model, CHILD, None))
    scorings = [selector.scoring for selector in selectors.values()] if selectors else []
    needs_text = any(scoring.needs_prompt for scoring in scorings)
    needs_attention = any(scoring.needs_class_attention for scoring in scorings)
    if not (needs_text or needs_attention):
        return {}
    base = cast(Any, model.base_model)
    last = [end - 1 for end in accumulate(lengths)]
    samples = is_placeholder.nonzero()[last, 0].tolist()  # which prompt each video is in
    if prompt is None:
        is_word = (text.types == 0) & (text.mask != 0)
        rows = zip(text.ids, is_word, strict=True)
        prompt = [base.get_input_embeddings()(ids[here]) for ids, here in rows]
    features = [prompt[sample][None] for sample in samples]
    context: dict[Any, Any] = {PROMPT: features}
    if needs_attention:
        context[ATTENTION] = partial(attend_from_text, base.language_model.layers[0])
    return context


def attend_from_text(layer: nn.Module, grids: Sequence[TokenGrid]) -> list[TokenGrid]:
    """Give each grid the attention of its prompt's words in the language model's first layer.

    It is that of the layer without the rotary embedding, averaged over words and heads.
    """
    parts = cast(Any, layer)
    found = []
    for grid in grids:
        if grid.prompt is None or grid.prompt.shape[-1] != grid.tokens.shape[-1]:
            found.append(grid)  # inside the tower, where there is no text yet
            continue
        attention, heads = parts.self_attn, (-1, parts.self_attn.head_dim)
        q = attention.q_proj(parts.input_layernorm(grid.prompt)).unflatten(2, heads)
        k = attention.k_proj(parts.input_layernorm(grid.tokens)).unflatten(2, heads)
        if hasattr(attention, "q_norm"):
            q, k = attention.q_norm(q), attention.k_norm(k)
        k = k.repeat_interleave(q.shape[2] // k.shape[2], dim=2)
        logits = torch.einsum("bqhd,bkhd->bhqk", q, k).float() * attention.head_dim**-0.5
        shares = logits.softmax(dim=-1).mean(dim=(1, 2))  # (1, n)
        found.append(replace(grid, class_attention=shares.unflatten(1, grid.thw)))
    return found


def refuse_whole(*positional: Any, **named: Any) -> None:
    """Refuse to encode videos for `generate`, whose prompt has placeholders for all tokens."""
    raise ValueError(
        "the model's selectors drop visual tokens, and this prompt has placeholders for all of "
        "them: call model.generate(**tokenselect.shrink_inputs(model, inputs))"
    )


def refuse_whole_inputs(arguments: Arguments) -> Arguments:
    """Refuse a tower that `generate` runs itself."""
    if CONTEXT not in arguments.named:
        refuse_whole()
    return arguments
