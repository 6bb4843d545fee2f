"""What insertion asks of a model family, and the arguments of one call of a block."""

from collections.abc import Callable, Sequence
from dataclasses import dataclass, field, replace
from operator import attrgetter
from typing import Any, Protocol

from torch import Tensor, nn
from torch.utils.hooks import RemovableHandle

from tokenselect.grid import TokenGrid
from tokenselect.plan import THW, SelectionPlan

Positional = tuple[Any, ...]  # arguments, as torch hands them to hooks
Named = dict[str, Any]


@dataclass(frozen=True)
class Arguments:
    """What a block is called with; adapters read it and give a changed copy back."""

    positional: Positional = ()  # in their order
    named: Named = field(default_factory=dict)  # by their names

    def get(self, index: int, name: str) -> Any:
        """Give the argument at `index` or, if it was passed by name or not at all, by `name`."""
        if index < len(self.positional):
            return self.positional[index]
        return self.named.get(name)

    def put(self, index: int, name: str, value: Any) -> "Arguments":
        """Return the arguments with this one changed, in the place where it was given."""
        if index < len(self.positional):
            before, after = self.positional[:index], self.positional[index + 1 :]
            return replace(self, positional=(*before, value, *after))
        return replace(self, named={**self.named, name: value})


Change = Callable[[Arguments], Arguments]


@dataclass(frozen=True, eq=False)
class ArgumentsHook:
    """Forward pre-hook that changes the arguments; a plain object, so models can be pickled."""

    change: Change

    def __call__(self, module: nn.Module, args: Positional, kwargs: Named) -> tuple[Any, Named]:
        """Change them."""
        arguments = self.change(Arguments(args, kwargs))
        return arguments.positional, arguments.named


def change_arguments(module: nn.Module, change: Change) -> RemovableHandle:
    """Make `module` see its arguments through `change`, from now on until removed.

    torch 2.8 compiles a model anew if its hooks have other numbers: here each module counts them.
    """
    handle = module.register_forward_pre_hook(ArgumentsHook(change), with_kwargs=True)
    hooks, takes_named = module._forward_pre_hooks, module._forward_pre_hooks_with_kwargs
    first, handle.id = handle.id, min(0, *hooks) - 1
    hooks[handle.id], takes_named[handle.id] = hooks.pop(first), takes_named.pop(first)
    return handle


CONTEXT = "token_context"  # named argument of the blocks, which ignore it


def begin_context(arguments: Arguments) -> Arguments:
    """Add an empty context, if there is none, to what a module hands on to its blocks by name.

    A context is a dict that belongs to one forward and travels with its arguments, so forwards may
    overlap, and a block that runs again in the backward pass finds the context of its own. Keep in
    it what kept tokens need later: rotary tables, masks, bounds of sequences, places. Since a block
    may run twice, what is stored must not depend on who ran last: use the number of tokens as key.

    Hook it in with `change_arguments(encoder, begin_context)` from `Adapter.attach`.
    """
    return replace(arguments, named={CONTEXT: {}, **arguments.named})


def context_of(arguments: Arguments) -> dict[Any, Any]:
    """Give the context of the forward that a block's arguments belong to."""
    if CONTEXT not in arguments.named:
        raise RuntimeError(
            "the model handed no context on to its blocks: the module that calls them must pass "
            "named arguments on, as those of transformers 5 do, and have the hook begin_context"
        )
    return arguments.named[CONTEXT]


class Removable(Protocol):
    """A change of a model that can be undone, such as a hook."""

    def remove(self) -> None:
        """Undo it."""


Changes = Sequence[Removable]


class OtherAttribute:
    """Gives a module another value of an attribute, until removed."""

    def __init__(self, module: nn.Module, name: str, value: Any) -> None:
        self.module, self.name, self.before = module, name, module.__dict__.get(name)
        setattr(module, name, value)

    def remove(self) -> None:
        """Give the module its own value back, or that of its class."""
        delattr(self.module, self.name)
        if self.before is not None:
            setattr(self.module, self.name, self.before)


class Adapter:
    """Reads a block's arguments as a `TokenGrid` and writes a smaller grid back into them.

    One adapter serves one model, and refuses one that it cannot serve. It keeps nothing of a
    forward pass, so that passes may overlap or be repeated (activation checkpointing does both).
    """

    # the blocks take any sequence of tokens; their grid is only a way to count them
    is_sequence = False
    # videos differ in size within a forward; a site that asks for more frames, rows and columns
    # than a video has keeps all of it
    is_ragged = False
    # at the site after the last block `read_all` fills in `class_attention`
    reads_end_attention = False
    # the model takes its clips in a list of one, as those that may have several pathways do
    takes_list = False

    def __init__(self, model: nn.Module) -> None:
        pass

    def blocks(self, model: nn.Module) -> Sequence[nn.Module]:
        """List the blocks that sites are counted by."""
        raise NotImplementedError

    def stage_starts(self, model: nn.Module) -> tuple[int, ...]:
        """Give the first block of each stage; a model without stages has one."""
        return (0,)

    def channels(self, block: nn.Module) -> int:
        """Give the width of the tokens that enter a block."""
        raise NotImplementedError

    def out_channels(self, block: nn.Module) -> int:
        """Give the width of the tokens that leave the last block."""
        return self.channels(block)

    def read(self, arguments: Arguments, thw: THW | None) -> TokenGrid:
        """Turn a block's arguments into a grid.

        `thw` is the grid there by the plan, for arguments that do not tell; None where `embed_thw`
        is None.
        """
        raise NotImplementedError

    def write(self, grid: TokenGrid, arguments: Arguments) -> Arguments:
        """Put a grid into a block's arguments."""
        raise NotImplementedError

    def read_all(self, arguments: Arguments, thw: THW | None) -> Sequence[TokenGrid]:
        """Turn a block's arguments into grids: one, but for models that pack videos of different
        sizes into one sequence, where each video is a grid of its own."""
        return (self.read(arguments, thw),)

    def write_all(self, grids: Sequence[TokenGrid], arguments: Arguments) -> Arguments:
        """Put the grids of `read_all`, made smaller, into a block's arguments."""
        (grid,) = grids
        return self.write(grid, arguments)

    def end(self, model: nn.Module) -> nn.Module | None:
        """Give the module whose output the site after the last block changes; None if the adapter
        runs that site itself."""
        return self.blocks(model)[-1]

    def after(self, arguments: Arguments, output: Any) -> Arguments:
        """Give the arguments that one more block would get: the site after the last block reads
        and writes them.

        `end` was called with `arguments`, and `output` is what it returned: the tokens, or a tuple
        that begins with what blocks take.
        """
        values = output if isinstance(output, tuple) else (output,)
        return replace(arguments, positional=(*values, *arguments.positional[len(values) :]))

    def output(self, arguments: Arguments, output: Any) -> Any:
        """Turn `after`, with a smaller grid in it, back into what `end` returns."""
        if isinstance(output, tuple):
            return arguments.positional[: len(output)]
        return arguments.positional[0]

    def embed_thw(self, model: nn.Module) -> THW | None:
        """Give the grid before block 0 for the model's usual input, or None if it is not known."""
        return None

    def out_thw(self, block: nn.Module, thw: THW) -> THW:
        """Give the grid that the block after this one gets."""
        return thw

    def attach(self, model: nn.Module, plan: SelectionPlan, grids: Sequence[THW]) -> Changes:
        """Change what else of the model must know that tokens are missing.

        `grids` has the grid that each block works on, and is empty where `embed_thw` is None.
        `remove_selectors` undoes the changes that are returned.
        """
        return ()

    def has_class_attention(self, block: nn.Module) -> bool:
        """Tell whether `class_attention` can be had of a block: where an adapter computes it."""
        return type(self).class_attention is not Adapter.class_attention

    def class_attention(self, block: nn.Module, grid: TokenGrid) -> Tensor:
        """Give the class token's attention in a block, on the grid after it: (b, t, h, w)."""
        raise NotImplementedError


class SequenceAdapter(Adapter):
    """Models whose blocks take the tokens, class tokens first, as one argument."""

    layers = "blocks"  # the attribute of the model that lists the blocks
    norm = "norm1"  # the attribute of a block that normalizes its tokens, as wide as they are
    argument = "x"  # the block's name of its first argument, the tokens
    num_prefix = 0  # class tokens in front

    def blocks(self, model: nn.Module) -> Sequence[nn.Module]:
        return tuple(attrgetter(self.layers)(model))

    def channels(self, block: nn.Module) -> int:
        return attrgetter(self.norm)(block).weight.shape[0]

    def read(self, arguments: Arguments, thw: THW | None) -> TokenGrid:
        assert thw is not None
        return TokenGrid(arguments.get(0, self.argument), thw, self.num_prefix)

    def write(self, grid: TokenGrid, arguments: Arguments) -> Arguments:
        return arguments.put(0, self.argument, grid.tokens)


def class_attention(attention: Any, tokens: Tensor) -> Tensor:
    """Give the class token's (..., n) attention to the other tokens in a layer of transformers.

    `attention` has `q_proj`, `k_proj` and `head_dim`; the (..., 1 + n, c) tokens are normalized,
    the class token first.
    """
    q = attention.q_proj(tokens[..., :1, :]).unflatten(-1, (-1, attention.head_dim))
    k = attention.k_proj(tokens).unflatten(-1, (-1, attention.head_dim))
    logits = (q * k).sum(-1) * attention.head_dim**-0.5  # (..., 1 + n, heads)
    return logits.softmax(dim=-2).mean(-1)[..., 1:]


def need_mean_pooling(is_pooled: bool) -> None:
    """Refuse a VideoMAE whose classifier reads one patch."""
    if not is_pooled:
        raise ValueError(
            "VideoMAE with use_mean_pooling=False classifies the first patch alone, which "
            "selection may drop; only use_mean_pooling=True is supported"
        )
