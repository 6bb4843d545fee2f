"""Keeping a language model in step with its vision tower: fewer placeholders, the same places.

The tower gives fewer tokens than the prompt has placeholders. `shrink` runs the tower, takes the
placeholders of dropped tokens out of the prompt, and leaves every other token the 3-D position it
had. Counts follow from the plan and the size of a video alone.
"""

import inspect
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import cached_property, partial
from typing import Any, cast

import torch
import torch.nn.functional as F
from torch import Tensor, nn

from tokenselect.adapters.adapter import CONTEXT, Adapter, Arguments
from tokenselect.grid import TokenGrid
from tokenselect.plan import CHILD, THW

FINAL, PROMPT, ATTENTION = "final", "prompt", "attention"  # keys of the context
PIXELS = {"image": "pixel_values", "video": "pixel_values_videos"}
GRIDS = {"image": "image_grid_thw", "video": "video_grid_thw"}
ALONG = ("input_ids", "attention_mask", "mm_token_type_ids", "labels")  # as long as the prompt
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

    def shrink(
        self, model: nn.Module, inputs: Mapping[str, Any], prompt: Sequence[Tensor] | None = None
    ) -> dict[str, Any]:
        """Encode the videos and take the placeholders of dropped tokens out of the prompt.

        Returns:
            Inputs for the model or its `generate`: `mm_encoder_outputs` in place of the pixels.
        """
        raise NotImplementedError


def shrink(
    model: nn.Module,
    inputs: Mapping[str, Any],
    tower: Any,
    prompt: Sequence[Tensor] | None = None,
) -> dict[str, Any]:
    """Run a tower with selectors and drop the placeholders of what it dropped."""
    base = cast(Any, model.base_model)
    text = Prompts.of(base, inputs)
    outputs: dict[str, Any] = {}
    dropped = torch.zeros_like(text.ids, dtype=torch.bool)
    for modality, name in PIXELS.items():
        if inputs.get(name) is None:
            continue
        is_placeholder = text.types == (1 if modality == "image" else 2)
        sizes = inputs[GRIDS[modality]]
        ends = (sizes.prod(dim=1) // tower.spatial_merge_size**2).cumsum(0)
        context = ask(model, text, is_placeholder, ends, prompt)
        pixels = inputs[name].type(tower.dtype)
        output = tower(pixels, grid_thw=sizes, return_dict=True, **{CONTEXT: context})
        packed: Packed = context[FINAL]
        if (found := int(is_placeholder.sum())) != packed.total:
            raise ValueError(
                f"input_ids must have a placeholder for each {modality} token, {packed.total} by "
                f"{GRIDS[modality]}, got {found}; were the inputs shrunk already?"
            )
        dropped[is_placeholder] = ~packed.mask
        outputs[modality] = _split(output, packed.lengths)
    positions = inputs.get("position_ids")
    if positions is None:
        positions = _rope(base, text, inputs)
    used = {*PIXELS.values(), *GRIDS.values(), "second_per_grid_ts", "position_ids", *ALONG}
    others = {name: value for name, value in inputs.items() if name not in used}
    shorter = text.without(dropped, positions, labels=inputs.get("labels"))
    base.rope_deltas = _deltas(shorter)
    return {**others, **shorter, "mm_encoder_outputs": outputs}


@dataclass(frozen=True)
class Packed:
    """The tokens of several videos, one after the other; an image is a video of one frame.

    The sequence holds each video in raster order or, with `window`, window by window within each
    frame. It knows nothing of the tokens' values.
    """

    whole: tuple[THW, ...]  # the grid of each video before any selection
    thws: tuple[THW, ...]  # what is left of them, as grids
    # (k,) the tokens that are left of each video, counted in its whole grid, rising
    places: tuple[Tensor, ...]
    window: int | None = None  # rows and columns of a window, or None for raster order

    @classmethod
    def of(
        cls, thws: Sequence[THW], *, device: torch.device, window: int | None = None
    ) -> "Packed":
        """Begin with all tokens of videos of these grids."""
        places = tuple(torch.arange(t * h * w, device=device) for t, h, w in thws)
        return cls(tuple(thws), tuple(thws), places, window)

    @property
    def lengths(self) -> list[int]:
        """How many tokens are left of each video."""
        return [len(places) for places in self.places]

    @property
    def total(self) -> int:
        """How many tokens there were at first."""
        return sum(t * h * w for t, h, w in self.whole)

    @property
    def is_whole(self) -> bool:
        """Nothing was dropped."""
        return len(self) == self.total

    def __len__(self) -> int:
        return sum(self.lengths)

    @cached_property
    def frame_ids(self) -> Tensor:
        """(n,) the frame of each token, counted through all videos, in the sequence's order."""
        return self._numbered(lambda places, thw: places // (thw[1] * thw[2]))

    @cached_property
    def window_ids(self) -> Tensor:
        """(n,) the window of each token, counted through all videos, in the sequence's order."""
        return self._numbered(self._windows)

    @cached_property
    def order(self) -> Tensor:
        """(n,) which token, counted video by video in raster order, stands at each place."""
        parts, start = [], 0
        for places, thw in zip(self.places, self.whole, strict=True):
            order = torch.arange(len(places), device=places.device)
            if self.window is not None:
                order = self._windows(places, thw).argsort(stable=True)
            parts.append(order + start)
            start += len(places)
        return torch.cat(parts)

    @cached_property
    def rows(self) -> Tensor:
        """(n,) where the tokens stood in the sequence of all tokens, in the sequence's order."""
        full = Packed.of(self.whole, device=self.order.device, window=self.window)
        return full.order.argsort()[self.indices].sort().values

    @cached_property
    def indices(self) -> Tensor:
        """(n,) the tokens that are left, counted through the whole grids in raster order."""
        sizes = [t * h * w for t, h, w in self.whole]
        starts = [sum(sizes[:index]) for index in range(len(sizes))]
        return torch.cat([p + s for p, s in zip(self.places, starts, strict=True)])

    @property
    def mask(self) -> Tensor:
        """(all,) true for tokens that are left, counted through the whole grids."""
        mask = torch.zeros(self.total, dtype=torch.bool, device=self.indices.device)
        return mask.index_fill(0, self.indices, True)

    def bounds(self, ids: Tensor, unit: int) -> Tensor:
        """Give where each run of equal ids begins and ends, in units of `unit` patches a token."""
        counts = torch.unique_consecutive(ids, return_counts=True)[1]
        return F.pad((counts * unit).cumsum(0, dtype=torch.int32), (1, 0))

    def _windows(self, places: Tensor, thw: THW) -> Tensor:
        """Number the windows of one video in the order of its sequence."""
        assert self.window is not None
        _, h, w = thw
        frame, row, column = places // (h * w), places // w % h, places % w
        down, across = -(-h // self.window), -(-w // self.window)
        return (frame * down + row // self.window) * across + column // self.window

    def _numbered(self, number: Callable[[Tensor, THW], Tensor]) -> Tensor:
        parts, start = [], 0
        for places, thw in zip(self.places, self.whole, strict=True):
            parts.append(number(places, thw) + start)
            start += thw[0] * thw[1] * thw[2]  # more than there are frames or windows
        return torch.cat(parts)[self.order]


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
            types = self.types.gather(1, order).masked_fill(is_padding, 0)
            shorter["mm_token_type_ids"] = types
        if labels is not None:
            shorter["labels"] = labels.gather(1, order).masked_fill(is_padding, IGNORED_LABEL)
        return shorter


def _rope(base: Any, text: Prompts, inputs: Mapping[str, Any]) -> Tensor:
    """Let the model number the tokens of the whole prompt: (3, b, l)."""
    settings = {
        "mm_token_type_ids": text.types,
        "attention_mask": text.mask,
        **{name: inputs.get(name) for name in (*GRIDS.values(), "second_per_grid_ts")},
    }
    known = inspect.signature(base.get_rope_index).parameters
    settings = {name: value for name, value in settings.items() if name in known}
    positions, _ = base.get_rope_index(text.ids, **settings)
    return positions


def _deltas(shorter: Mapping[str, Tensor]) -> Tensor:
    """Give (b, 1) how far the next position is ahead of the number of tokens in the cache."""
    mask, spatial = shorter["attention_mask"].bool(), shorter["position_ids"][1:]
    last = spatial.masked_fill(~mask, -1).amax(dim=(0, 2))
    return (last + 1 - mask.sum(dim=1))[:, None]


def _split(output: Any, lengths: list[int]) -> Any:
    """Split the tower's tokens by video, as the language model wants them."""
    output.pooler_output = output.pooler_output.split(lengths)
    features = getattr(output, "deepstack_features", None)
    if features is not None:
        output.deepstack_features = [feature.split(lengths) for feature in features]
    return output


def ask(
    model: nn.Module,
    text: Prompts,
    is_placeholder: Tensor,
    ends: Tensor,
    prompt: Sequence[Tensor] | None,
) -> dict[Any, Any]:
    """Begin a context with what the methods of the sites want to know of the prompt.

    `ends` are the last placeholders of each video, counted through all of them from 1.
    """
    selectors = cast(Any, getattr(model, CHILD, None))
    scorings = [selector.scoring for selector in selectors.values()] if selectors else []
    needs_text = any(scoring.needs_prompt for scoring in scorings)
    needs_attention = any(scoring.needs_class_attention for scoring in scorings)
    if not (needs_text or needs_attention):
        return {}
    base = cast(Any, model.base_model)
    samples = is_placeholder.nonzero()[ends - 1, 0].tolist()  # which prompt each video is in
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
        attention = parts.self_attn
        q = attention.q_proj(parts.input_layernorm(grid.prompt)).unflatten(
            2, (-1, attention.head_dim)
        )
        k = attention.k_proj(parts.input_layernorm(grid.tokens)).unflatten(
            2, (-1, attention.head_dim)
        )
        if hasattr(attention, "q_norm"):
            q, k = attention.q_norm(q), attention.k_norm(k)
        k = k.repeat_interleave(q.shape[2] // k.shape[2], dim=2)
        logits = torch.einsum("bqhd,bkhd->bhqk", q, k).float() * attention.head_dim**-0.5
        shares = logits.softmax(dim=-1).mean(dim=(1, 2))  # (1, n)
        found.append(replace(grid, class_attention=shares.unflatten(1, grid.thw)))
    return found


class ShrinkHook:
    """Forward pre-hook on a language model: shrinks inputs that have pixels; a plain object."""

    def __init__(self, adapter: LanguageAdapter) -> None:
        self.adapter = adapter

    def __call__(
        self, model: nn.Module, positional: tuple[Any, ...], named: dict[str, Any]
    ) -> tuple[tuple[Any, ...], dict[str, Any]] | None:
        """Shrink them; the steps of `generate` after the first have no pixels."""
        names = list(inspect.signature(model.forward).parameters)
        inputs = {**dict(zip(names, positional, strict=False)), **named}
        if all(inputs.get(name) is None for name in PIXELS.values()):
            return None
        if inputs.get("past_key_values") is not None:
            refuse_whole()
        return (), self.adapter.shrink(model, inputs)


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
