"""ViViT of Hugging Face: a class token in front, and a mask that all layers share."""

from collections.abc import Sequence
from typing import Any, cast

from torch import Tensor, nn

from tokenselect.adapters.adapter import Removable
from tokenselect.adapters.arguments import Arguments, change_arguments
from tokenselect.adapters.huggingface import HuggingFaceAdapter
from tokenselect.grid import TokenGrid
from tokenselect.plan import THW, SelectionPlan


class VivitAdapter(HuggingFaceAdapter):
    """`transformers.VivitModel` and `VivitForVideoClassification`."""

    is_sequence = True
    num_prefix = 1

    def __init__(self, model: nn.Module) -> None:
        super().__init__(model)
        if not hasattr(model.base_model, "layers"):
            raise ValueError(
                "selection in ViViT needs transformers 5, this model is of an older one"
            )

    def blocks(self, model: nn.Module) -> Sequence[nn.Module]:
        """List the layers."""
        return tuple(cast(Any, model.base_model).layers)

    def attach(
        self, model: nn.Module, plan: SelectionPlan, grids: Sequence[THW]
    ) -> Sequence[Removable]:
        """Take the mask from the layers: an exported model has one, as large as all the tokens."""
        first = min(site.block for site in plan)
        return [
            change_arguments(cast(nn.Module, model.base_model), refuse_mask),
            *(change_arguments(layer, drop_mask) for layer in self.blocks(model)[first:]),
        ]

    def has_class_attention(self, block: nn.Module) -> bool:
        """Every layer has a class token."""
        return True

    def class_attention(self, block: nn.Module, grid: TokenGrid) -> Tensor:
        """Compute the class token's attention again from the layer's input."""
        attention = cast(Any, block.attention)
        tokens = cast(nn.Module, block.layernorm_before)(grid.tokens)
        q = attention.q_proj(tokens[:, :1]).unflatten(2, (-1, attention.head_dim))
        k = attention.k_proj(tokens).unflatten(2, (-1, attention.head_dim))
        logits = (q * k).sum(-1) * attention.scaling  # (b, 1 + t·h·w, heads)
        return logits.softmax(dim=1).mean(-1)[:, 1:].unflatten(1, grid.thw)


def refuse_mask(arguments: Arguments) -> Arguments:
    """Refuse a mask of the user: the tokens it hides are no longer where it says."""
    if arguments.get(2, "attention_mask") is not None:
        raise ValueError("ViViT with selectors takes no attention_mask, got one")
    return arguments


def drop_mask(arguments: Arguments) -> Arguments:
    """Call a layer without a mask; the one that is dropped hides nothing."""
    return arguments.put(1, "attention_mask", None)
