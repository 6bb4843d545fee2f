"""Plain video transformers of Hugging Face: one list of layers, tokens (b, p + t·h·w, c)."""

from collections.abc import Sequence
from typing import Any, cast

from torch import nn

from tokenselect.adapters.adapter import Adapter
from tokenselect.adapters.arguments import Arguments
from tokenselect.grid import TokenGrid
from tokenselect.plan import THW


class HuggingFaceAdapter(Adapter):
    """What they have in common: the grid follows from the configuration and the plan."""

    num_prefix = 0

    def __init__(self, model: nn.Module) -> None:
        super().__init__(model)
        self.config = cast(Any, model.config)

    def blocks(self, model: nn.Module) -> Sequence[nn.Module]:
        """List the layers."""
        return tuple(cast(Any, model.base_model).encoder.layer)

    def channels(self, block: nn.Module) -> int:
        """Give the width of all tokens."""
        return self.config.hidden_size

    def read(self, arguments: Arguments, thw: THW | None) -> TokenGrid:
        """Lay the tokens out on the grid of the plan."""
        assert thw is not None
        return TokenGrid(arguments.get(0, "hidden_states"), thw, self.num_prefix)

    def write(self, grid: TokenGrid, arguments: Arguments) -> Arguments:
        """Put the tokens back."""
        return arguments.put(0, "hidden_states", grid.tokens)

    def embed_thw(self, model: nn.Module) -> THW | None:
        """Give the only grid that the position embeddings allow."""
        patches = cast(Any, model.base_model).embeddings.patch_embeddings
        t, h, w = patches.projection.kernel_size
        height, width = patches.image_size
        return self.config.num_frames // t, height // h, width // w


class VideoMAEAdapter(HuggingFaceAdapter):
    """`transformers.VideoMAEModel` and `VideoMAEForVideoClassification`."""

    is_sequence = True

    def __init__(self, model: nn.Module) -> None:
        super().__init__(model)
        if hasattr(model, "classifier") and not self.config.use_mean_pooling:
            raise ValueError(
                "VideoMAE with use_mean_pooling=False classifies the first patch alone, which "
                "selection may drop; only use_mean_pooling=True is supported"
            )
