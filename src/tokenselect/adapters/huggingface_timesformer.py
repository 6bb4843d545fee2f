"""TimeSformer of Hugging Face: tokens in (h, w, t) order, sizes read from a configuration."""

from collections.abc import Sequence
from copy import copy
from typing import Any, cast

import torch
from torch import nn

from tokenselect.adapters.adapter import Removable
from tokenselect.adapters.arguments import Arguments
from tokenselect.adapters.huggingface import HuggingFaceAdapter
from tokenselect.grid import TokenGrid
from tokenselect.plan import THW, SelectionPlan


class TimesformerAdapter(HuggingFaceAdapter):
    """`transformers.TimesformerModel` and `TimesformerForVideoClassification`.

    Its layers take the number of frames and of columns from their configuration, so a layer behind
    a site is given a configuration of its own. It is the same for every forward.
    """

    def __init__(self, model: nn.Module) -> None:
        super().__init__(model)
        if self.config.attention_type == "space_only":
            raise ValueError(
                "TimeSformer with attention_type='space_only' treats each frame as a clip of its "
                "own, so there are no frames to select; supported: 'divided_space_time' and "
                "'joint_space_time'"
            )

    def read(self, arguments: Arguments, thw: THW | None) -> TokenGrid:
        """Bring the patches behind the class token into (t, h, w) order."""
        assert thw is not None
        t, h, w = thw
        tokens = arguments.get(0, "hidden_states")
        patches = tokens[:, 1:].unflatten(1, (h, w, t)).permute(0, 3, 1, 2, 4)
        return TokenGrid.from_patches(patches, tokens[:, :1])

    def write(self, grid: TokenGrid, arguments: Arguments) -> Arguments:
        """Bring the patches back into (h, w, t) order."""
        patches = grid.patches.permute(0, 2, 3, 1, 4).flatten(1, 3)
        return arguments.put(0, "hidden_states", torch.cat([grid.prefix, patches], dim=1))

    def embed_thw(self, model: nn.Module) -> THW | None:
        """Give the grid that the layers believe in."""
        side = self.config.image_size // self.config.patch_size
        return self.config.num_frames, side, side

    def attach(
        self, model: nn.Module, plan: SelectionPlan, grids: Sequence[THW]
    ) -> Sequence[Removable]:
        """Give each layer that works on a smaller grid a configuration that says so."""
        whole = self.embed_thw(model)
        blocks = zip(self.blocks(model), grids, strict=True)
        return [GridOfLayer(block, thw) for block, thw in blocks if thw != whole]


class GridOfLayer:
    """Makes a layer work on another grid, until removed."""

    def __init__(self, layer: nn.Module, thw: THW) -> None:
        self.layer = layer
        self.before = cast(Any, layer.config)
        config = copy(self.before)
        config.num_frames = thw[0]
        config.image_size = thw[2] * config.patch_size  # rows follow from the number of tokens
        layer.config = config

    def remove(self) -> None:
        """Give the layer its own configuration back."""
        self.layer.config = self.before
