"""Qwen2-VL, Qwen2.5-VL and Qwen3-VL: selection in the vision tower and after it.

A token is a merge unit, the 2×2 patches that become one token of the language model. Videos and
images of any size are packed into one sequence, so each is a grid of its own. The site after the
last block comes after the merger: its tokens are those that the language model would get.
"""

from collections.abc import Mapping, Sequence
from functools import partial
from typing import Any, cast

import torch
from torch import Tensor, nn

from tokenselect.adapters.adapter import (
    CONTEXT,
    Arguments,
    Changes,
    Removable,
    begin_context,
    change_arguments,
    context_of,
)
from tokenselect.adapters.language import (
    ATTENTION,
    FINAL,
    PROMPT,
    LanguageAdapter,
    Packed,
    ShrinkHook,
    refuse_whole_inputs,
    shrink,
)
from tokenselect.grid import TokenGrid
from tokenselect.plan import THW, SelectionPlan

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
        """Give the grid of merge units."""
        return size[0], size[1] // self.side, size[2] // self.side

    def shrink(
        self, model: nn.Module, inputs: Mapping[str, Any], prompt: Sequence[Tensor] | None = None
    ) -> dict[str, Any]:
        """Run the tower and shorten the prompt; kept tokens keep their 3-D positions."""
        return shrink(model, inputs, tower_of(model), prompt)

    def blocks(self, model: nn.Module) -> Sequence[nn.Module]:
        """List the blocks of the vision tower."""
        return tuple(cast(Any, tower_of(model)).blocks)

    def channels(self, block: nn.Module) -> int:
        """Give the width of a merge unit: that of its patches, side by side."""
        return self.unit * cast(Tensor, cast(nn.Module, block.norm1).weight).shape[0]

    def out_channels(self, block: nn.Module) -> int:
        """Give the width of the language model."""
        return self.width

    def read_all(self, arguments: Arguments, thw: THW | None) -> Sequence[TokenGrid]:
        """Bring the units of each video into (t, h, w) order."""
        tokens, context = arguments.get(0, "hidden_states"), context_of(arguments)
        if END in arguments.named:
            packed, units = context[len(tokens)], tokens
        else:
            packed = context[len(tokens) // self.unit]
            units = tokens.unflatten(0, (-1, self.unit)).flatten(1)[packed.order.argsort()]
        prompts = context.get(PROMPT) or [None] * len(packed.thws)
        grids = [
            TokenGrid(video[None], thw, positions=places[None], prompt=prompt)
            for video, thw, places, prompt in zip(
                units.split(packed.lengths), packed.thws, packed.places, prompts, strict=True
            )
        ]
        return context[ATTENTION](grids) if ATTENTION in context else grids

    def write_all(self, grids: Sequence[TokenGrid], arguments: Arguments) -> Arguments:
        """Put the units back into the order of the sequence, and note which are left."""
        tokens, context = arguments.get(0, "hidden_states"), context_of(arguments)
        before = context[len(tokens) if END in arguments.named else len(tokens) // self.unit]
        units = torch.cat([grid.tokens[0] for grid in grids])
        after = before
        if len(units) < len(before):
            places = tuple(cast(Tensor, grid.positions)[0] for grid in grids)
            thws = tuple(grid.thw for grid in grids)
            after = Packed(before.whole, thws, places, before.window)
            context[len(after)] = after
        if END not in arguments.named:
            units = units[after.order].unflatten(1, (self.unit, -1)).flatten(0, 1)
        return arguments.put(0, "hidden_states", units)

    def end(self, model: nn.Module) -> nn.Module:
        """Give the tower: the merger is its last part."""
        return tower_of(model)

    def after(self, arguments: Arguments, output: Any) -> Arguments:
        """Take the merged units."""
        return Arguments((output.pooler_output,), {END: True, CONTEXT: context_of(arguments)})

    def output(self, arguments: Arguments, output: Any) -> Any:
        """Put the merged units back."""
        output.pooler_output = arguments.positional[0]
        return output

    def attach(self, model: nn.Module, plan: SelectionPlan, grids: Sequence[THW]) -> Changes:
        """Begin a context in the tower, keep its blocks in step, and the language model, too."""
        tower, blocks = cast(Any, tower_of(model)), self.blocks(model)
        whole = getattr(tower, "fullatt_block_indexes", range(len(blocks)))
        first = min(site.block for site in plan)
        changes: list[Removable] = []
        if tower is not model:
            changes.append(change_arguments(tower, refuse_whole_inputs))
            changes.append(model.register_forward_pre_hook(ShrinkHook(self), with_kwargs=True))
        changes.append(change_arguments(tower, self.begin))
        for index, block in enumerate(blocks[first:], start=first):
            changes.append(change_arguments(block, partial(self.step, is_whole=index in whole)))
        if first < len(blocks) and self.window is not None:
            changes.append(blocks[-1].register_forward_hook(self.fill, with_kwargs=True))
            hook = tower.register_forward_hook(self.unfill, with_kwargs=True, prepend=True)
            changes.append(hook)
        changes.append(tower.register_forward_hook(self.finish, with_kwargs=True))
        return changes

    def begin(self, arguments: Arguments) -> Arguments:
        """Begin a context with the grids of all videos."""
        sizes = arguments.get(1, "grid_thw")
        thws = [self.whole_thw(size) for size in sizes.tolist()]
        device = arguments.get(0, "hidden_states").device
        packed = Packed.of(thws, device=device, window=self.window)
        arguments = begin_context(arguments)
        context_of(arguments)[len(packed)] = packed
        return arguments

    def step(self, arguments: Arguments, *, is_whole: bool) -> Arguments:
        """Tell a block the rotary positions of what is left, and where its sequences end."""
        packed = context_of(arguments)[len(arguments.get(0, "hidden_states")) // self.unit]
        if packed.is_whole:
            return arguments
        ids = packed.frame_ids if is_whole else packed.window_ids
        bounds = packed.bounds(ids, self.unit)
        patches = torch.arange(self.unit, device=bounds.device)
        rows = (packed.rows[:, None] * self.unit + patches).flatten()
        tables = arguments.named["position_embeddings"]
        named = {"cu_seqlens": bounds, "position_embeddings": tuple(t[rows] for t in tables)}
        if arguments.named.get("max_seqlen") is not None:
            named["max_seqlen"] = int(bounds.diff().max())
        return Arguments(arguments.positional, {**arguments.named, **named})

    def fill(
        self, block: nn.Module, positional: tuple[Any, ...], named: dict[str, Any], output: Tensor
    ) -> Tensor:
        """Put zeros where units are missing: behind the merger the tower undoes the windows' order
        with as many indices as there were units at first."""
        packed = named[CONTEXT][len(output) // self.unit]
        named[CONTEXT][FINAL] = packed
        units = output.unflatten(0, (-1, self.unit))
        everything = units.new_zeros(packed.total, *units.shape[1:])
        return everything.index_copy(0, packed.rows, units).flatten(0, 1)

    def unfill(
        self, tower: nn.Module, positional: tuple[Any, ...], named: dict[str, Any], output: Any
    ) -> Any:
        """Take the zeros out again."""
        packed = named[CONTEXT][FINAL]
        output.pooler_output = output.pooler_output[packed.indices]
        units = output.last_hidden_state.unflatten(0, (-1, self.unit))[packed.rows]
        output.last_hidden_state = units.flatten(0, 1)
        return output

    def finish(
        self, tower: nn.Module, positional: tuple[Any, ...], named: dict[str, Any], output: Any
    ) -> Any:
        """Note what is left, and leave as much of the features of earlier blocks (Qwen3-VL)."""
        context = named[CONTEXT]
        packed = context[len(output.pooler_output)]
        context[FINAL] = packed
        features = getattr(output, "deepstack_features", None)
        if features is not None:
            kept = [f[torch.isin(context[len(f)].indices, packed.indices)] for f in features]
            output.deepstack_features = kept
        return output


def tower_of(model: nn.Module) -> nn.Module:
    """Give the vision tower of a language model; a tower is its own."""
    return cast(nn.Module, getattr(model.base_model, "visual", model))
