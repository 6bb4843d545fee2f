"""Qwen2-VL, Qwen2.5-VL and Qwen3-VL: selection in the vision tower and after it.

A token is a merge unit, the 2×2 patches that become one token of the language model. Videos and
images of any size are packed into one sequence, so each is a grid of its own. The site after the
last block comes after the merger: its tokens are those that the language model would get.
"""

import inspect
from collections.abc import Mapping, Sequence
from functools import partial
from importlib import import_module
from typing import Any, cast

import torch
from torch import Tensor, nn

from tokenselect.adapters import adapter, language
from tokenselect.adapters.adapter import CONTEXT, Arguments, Changes, Named, Positional, context_of
from tokenselect.adapters.language import LanguageAdapter, Prompts
from tokenselect.adapters.packing import GROUPS, Groups, Packed, TracedAttention
from tokenselect.grid import TokenGrid
from tokenselect.plan import CHILD, THW, SelectionPlan

END = "pooler_output"  # named argument that marks the tokens after the merger


class QwenVLAdapter(LanguageAdapter):
    """The vision tower on its own, or the language model around it.

    The context of a forward holds a `Packed` for every number of tokens that was left on the way.
    """

    def __init__(self, model: nn.Module) -> None:
        super().__init__(model)
        tower = cast(Any, tower_of(model))
        self.unit: int = tower.spatial_merge_size**2
        self.side: int = tower.spatial_merge_size
        self.window: int | None = None
        if hasattr(tower, "fullatt_block_indexes"):  # Qwen2.5-VL attends within windows
            self.window = tower.window_size // self.side // tower.patch_size
        self.reads_end_attention = tower is not model
        merger = [part for part in tower.merger.modules() if isinstance(part, nn.Linear)][-1]
        self.width: int = merger.out_features

    def whole_thw(self, size: THW) -> THW:
        return size[0], size[1] // self.side, size[2] // self.side

    def lengths(self, inputs: Mapping[str, Any], modality: str) -> list[int] | None:
        return (inputs[language.GRIDS[modality]].prod(dim=1) // self.unit).tolist()

    def encode(
        self, model: nn.Module, inputs: Mapping[str, Any], modality: str, context: dict[Any, Any]
    ) -> tuple[Any, Tensor | None]:
        tower = cast(Any, tower_of(model))
        pixels = inputs[language.PIXELS[modality]].type(tower.dtype)
        sizes = inputs[language.GRIDS[modality]]
        output = tower(pixels, grid_thw=sizes, return_dict=True, **{CONTEXT: context})
        packed: Packed = context[language.FINAL]
        output.pooler_output = output.pooler_output.split(packed.lengths)
        features = getattr(output, "deepstack_features", None)
        if features is not None:
            output.deepstack_features = [feature.split(packed.lengths) for feature in features]
        return output, packed.mask

    def positions(
        self, model: nn.Module, text: Prompts, inputs: Mapping[str, Any]
    ) -> Tensor | None:
        if inputs.get("position_ids") is not None:
            return inputs["position_ids"]
        base = cast(Any, model.base_model)
        settings = {
            "mm_token_type_ids": text.types,
            "attention_mask": text.mask,
            **{name: inputs.get(name) for name in (*language.GRIDS.values(), "second_per_grid_ts")},
        }
        known = inspect.signature(base.get_rope_index).parameters
        settings = {name: value for name, value in settings.items() if name in known}
        return base.get_rope_index(text.ids, **settings)[0]

    def shrink(
        self, model: nn.Module, inputs: Mapping[str, Any], prompt: Sequence[Tensor] | None = None
    ) -> dict[str, Any]:
        """Also say how far the next position is ahead of the number of tokens in the cache."""
        shorter = super().shrink(model, inputs, prompt)
        if "mm_encoder_outputs" in shorter:
            mask, spatial = shorter["attention_mask"].bool(), shorter["position_ids"][1:]
            last = spatial.masked_fill(~mask, -1).amax(dim=(0, 2))
            deltas = (last + 1 - mask.sum(dim=1))[:, None]  # (b, 1)
            cast(Any, model.base_model).rope_deltas = deltas
        return shorter

    def blocks(self, model: nn.Module) -> Sequence[nn.Module]:
        return tuple(cast(Any, tower_of(model)).blocks)

    def channels(self, block: nn.Module) -> int:
        """Give the width of a merge unit: that of its patches, side by side."""
        return self.unit * cast(Tensor, cast(nn.Module, block.norm1).weight).shape[0]

    def out_channels(self, block: nn.Module) -> int:
        return self.width

    def read_all(self, arguments: Arguments, thw: THW | None) -> Sequence[TokenGrid]:
        """Bring the units of each video into (t, h, w) order."""
        tokens, context = arguments.get(0, "hidden_states"), context_of(arguments)
        if END in arguments.named:
            packed, units = context[len(tokens)], tokens
        else:
            packed = context[len(tokens) // self.unit]
            units = tokens.unflatten(0, (-1, self.unit)).flatten(1)[packed.order.argsort()]
        prompts = context.get(language.PROMPT) or [None] * len(packed.thws)
        parts = (units.split(packed.lengths), packed.thws, packed.places, prompts)
        grids = [
            TokenGrid(video[None], thw, positions=p[None], prompt=words, is_loose=packed.is_loose)
            for video, thw, p, words in zip(*parts, strict=True)
        ]
        return context[language.ATTENTION](grids) if language.ATTENTION in context else grids

    def write_all(self, grids: Sequence[TokenGrid], arguments: Arguments) -> Arguments:
        """Put the units back into the order of the sequence, and note which are left."""
        tokens, context = arguments.get(0, "hidden_states"), context_of(arguments)
        before = context[len(tokens) if END in arguments.named else len(tokens) // self.unit]
        units = torch.cat([grid.tokens[0] for grid in grids])
        after = before
        if len(units) < len(before):
            places = tuple(cast(Tensor, grid.positions)[0] for grid in grids)
            thws = tuple(grid.thw for grid in grids)
            is_loose = any(grid.is_loose for grid in grids)
            after = Packed(before.whole, thws, places, before.window, is_loose)
            context[len(after)] = after
        if END not in arguments.named:
            units = units[after.order].unflatten(1, (self.unit, -1)).flatten(0, 1)
        return arguments.put(0, "hidden_states", units)

    def end(self, model: nn.Module) -> nn.Module:
        """Give the tower: the merger is its last part."""
        return tower_of(model)

    def after(self, arguments: Arguments, output: Any) -> Arguments:
        return Arguments((output.pooler_output,), {END: True, CONTEXT: context_of(arguments)})

    def output(self, arguments: Arguments, output: Any) -> Any:
        output.pooler_output = arguments.positional[0]
        return output

    def attach(self, model: nn.Module, plan: SelectionPlan, grids: Sequence[THW]) -> Changes:
        """Begin a context in the tower, keep its blocks in step, and the language model, too."""
        tower, blocks = cast(Any, tower_of(model)), self.blocks(model)
        whole = getattr(tower, "fullatt_block_indexes", range(len(blocks)))
        first = min(site.block for site in plan)
        changes: list[adapter.Removable] = []
        if tower is not model:
            changes.append(adapter.change_arguments(tower, language.refuse_whole_inputs))
            changes.append(model.register_forward_pre_hook(self.shrink_call, with_kwargs=True))
        changes.append(adapter.change_arguments(tower, self.begin))
        for index, block in enumerate(blocks):
            step = partial(self.step, is_whole=index in whole)
            changes.append(adapter.change_arguments(block, step))
            attention = cast(nn.Module, block.attn)
            config = TracedAttention(attention.config)
            changes.append(adapter.OtherAttribute(attention, "config", config))
        if first < len(blocks) and self.window is not None:
            changes.append(blocks[-1].register_forward_hook(self.fill, with_kwargs=True))
            hook = tower.register_forward_hook(self.unfill, with_kwargs=True, prepend=True)
            changes.append(hook)
        changes.append(tower.register_forward_hook(self.finish, with_kwargs=True))
        return changes

    def begin(self, arguments: Arguments) -> Arguments:
        """Begin a context with the grids of all videos, unless it was begun with them."""
        sizes, arguments = arguments.get(1, "grid_thw"), adapter.begin_context(arguments)
        if sizes is not None:
            device = arguments.get(0, "hidden_states").device
            self.pack(sizes.tolist(), device, context_of(arguments))
        return arguments

    def pack(self, sizes: Sequence[THW], device: torch.device, context: dict[Any, Any]) -> None:
        """Put the tokens of all videos into a context."""
        thws = [self.whole_thw(size) for size in sizes]
        packed = Packed.of(thws, device=device, window=self.window)
        context[len(packed)] = packed

    def step(self, arguments: Arguments, *, is_whole: bool) -> Arguments:
        """Tell a block the rotary positions of what is left, and where its sequences end."""
        packed = context_of(arguments)[len(arguments.get(0, "hidden_states")) // self.unit]
        is_traced = torch.compiler.is_compiling()
        if packed.is_whole and not is_traced:
            return arguments
        ids, named = packed.frame_ids if is_whole else packed.window_ids, dict(arguments.named)
        if not packed.is_whole:
            patches = torch.arange(self.unit, device=ids.device)
            rows = (packed.rows[:, None] * self.unit + patches).flatten()
            named["position_embeddings"] = tuple(t[rows] for t in named["position_embeddings"])
        if is_traced:
            named["cu_seqlens"] = named[GROUPS] = Groups(packed, ids, self.unit, is_whole)
            return Arguments(arguments.positional, named)
        named["cu_seqlens"] = bounds = packed.bounds(ids, self.unit)
        if named.get("max_seqlen") is not None:
            named["max_seqlen"] = int(bounds.diff().max())
        return Arguments(arguments.positional, named)

    def fill(self, block: nn.Module, args: Positional, kwargs: Named, output: Tensor) -> Tensor:
        """Put zeros where units are missing: behind the merger the tower undoes the windows' order
        with as many indices as there were units at first."""
        packed = kwargs[CONTEXT][len(output) // self.unit]
        kwargs[CONTEXT][language.FINAL] = packed
        units = output.unflatten(0, (-1, self.unit))
        everything = units.new_zeros(packed.total, *units.shape[1:])
        return everything.index_copy(0, packed.rows, units).flatten(0, 1)

    def unfill(self, tower: nn.Module, args: Positional, kwargs: Named, output: Any) -> Any:
        """Take the zeros out again."""
        packed = kwargs[CONTEXT][language.FINAL]
        output.pooler_output = output.pooler_output[packed.indices]
        units = output.last_hidden_state.unflatten(0, (-1, self.unit))[packed.rows]
        output.last_hidden_state = units.flatten(0, 1)
        return output

    def finish(self, tower: nn.Module, args: Positional, kwargs: Named, output: Any) -> Any:
        """Note what is left, and leave as much of the features of earlier blocks (Qwen3-VL)."""
        context = kwargs[CONTEXT]
        packed = context[len(output.pooler_output)]
        context[language.FINAL] = packed
        features = getattr(output, "deepstack_features", None)
        if features is not None:
            output.deepstack_features = [f[packed.rows_in(context[len(f)])] for f in features]
        return output

    def tower(self, model: nn.Module, sizes: Sequence[THW]) -> nn.Module:
        return QwenTower(self, model, sizes)


def tower_of(model: nn.Module) -> nn.Module:
    """Give the vision tower of a language model; a tower is its own."""
    return cast(nn.Module, getattr(model.base_model, "visual", model))


class QwenTower(nn.Module):
    """A tower with selectors for videos of fixed sizes, as a function of their patches alone.

    What its blocks want to know of the sizes is computed here, once, as transformers computes it.
    `input_shape` is that of the patches, as the processor gives them.
    """

    def __init__(self, adapter: QwenVLAdapter, model: nn.Module, sizes: Sequence[THW]) -> None:
        super().__init__()
        self.adapter, self.tower, self.sizes = adapter, tower_of(model), sizes
        self.selectors = getattr(model, CHILD)
        own, tables = cast(Any, self.tower), import_module("transformers.vision_utils")
        grid = torch.tensor(sizes, device=next(self.tower.parameters()).device)
        config, side = own.config, adapter.side
        width = config.in_channels * config.temporal_patch_size * config.patch_size**2
        self.input_shape = (int(grid.prod(dim=1).sum()), width)
        known = {"position_ids": tables.get_vision_position_ids(grid, side)}
        if adapter.window is not None:
            settings = {"window_size": own.window_size, "patch_size": own.patch_size}
            windows = tables.get_vision_window_index(grid, spatial_merge_size=side, **settings)
            known["window_index"], known["cu_window_seqlens"] = windows
        if hasattr(own, "pos_embed"):
            interpolate = tables.get_vision_interpolation_indices_and_weights
            how = {"mode": own.interpolation_mode, "num_grid_per_side": own.num_grid_per_side}
            how |= {"align_corners": own.interpolation_align_corners, "spatial_merge_size": side}
            known["interp_indices"], known["interp_weights"] = interpolate(grid, **how)
        known["cu_seqlens"] = tables.get_vision_cu_seqlens(grid)
        self.names = list(known)
        for name, table in known.items():
            self.register_buffer(name, table, persistent=False)

    def forward(self, patches: Tensor) -> tuple[Tensor, ...]:
        """Map the patches of all videos to what the language model gets of them.

        Returns:
            (k, c) tokens; (k,) which of all merge units they are, rising; for Qwen3-VL, the (k, c)
            features of earlier blocks.
        """
        context: dict[Any, Any] = {}
        self.adapter.pack(self.sizes, patches.device, context)
        known = {name: getattr(self, name) for name in self.names}
        output = self.tower(patches, grid_thw=None, **known, **{CONTEXT: context})
        features = getattr(output, "deepstack_features", None) or []
        return output.pooler_output, context[language.FINAL].indices, *features
