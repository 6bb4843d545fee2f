"""V-JEPA 2 of Hugging Face: every layer rotates queries and keys by the tokens' places."""

from collections.abc import Sequence
from dataclasses import replace
from typing import Any, cast

import torch
from torch import Tensor, nn

from tokenselect.adapters.adapter import Removable
from tokenselect.adapters.arguments import Arguments, change_arguments
from tokenselect.adapters.huggingface import HuggingFaceAdapter
from tokenselect.grid import TokenGrid
from tokenselect.plan import THW, SelectionPlan

PLACES = "token_places"  # named argument of the layers, which ignore it


class VJEPA2Adapter(HuggingFaceAdapter):
    """`transformers.VJEPA2Model` and `VJEPA2ForVideoClassification`; clips of any length.

    Kept tokens keep the places they had. A dict that is new at every forward travels through the
    layers and holds them by the number of tokens that are left.
    """

    is_sequence = True

    def read(self, arguments: Arguments, thw: THW | None) -> TokenGrid:
        """Lay the tokens out, with their places; the number of frames is that of the clip."""
        assert thw is not None
        tokens = arguments.get(0, "hidden_states")
        _, h, w = thw
        grid = TokenGrid(tokens, (tokens.shape[1] // (h * w), h, w))
        places = arguments.named.get(PLACES, {}).get(tokens.shape[1])
        if places is None:  # nothing was dropped yet
            places = torch.arange(tokens.shape[1], device=tokens.device)
            places = places.expand(tokens.shape[0], -1)
        return replace(grid, positions=places)

    def write(self, grid: TokenGrid, arguments: Arguments) -> Arguments:
        """Put the tokens back and, if some were dropped, the places of those that are left."""
        before = arguments.get(0, "hidden_states").shape[1]
        arguments = super().write(grid, arguments)
        if grid.tokens.shape[1] == before:
            return place_tokens(arguments)
        assert grid.positions is not None
        places_of(arguments)[grid.tokens.shape[1]] = grid.positions
        return place_tokens(arguments)

    def embed_thw(self, model: nn.Module) -> THW | None:
        """Give the grid of the usual clip."""
        side = self.config.crop_size // self.config.patch_size
        return self.config.frames_per_clip // self.config.tubelet_size, side, side

    def attach(
        self, model: nn.Module, plan: SelectionPlan, grids: Sequence[THW]
    ) -> Sequence[Removable]:
        """Send the dict of places along, and give them to the layers between the sites."""
        base = cast(Any, model.base_model)
        sites = {site.block for site in plan}
        layers = enumerate(self.blocks(model))
        between = [layer for i, layer in layers if i > min(sites) and i not in sites]
        return [
            change_arguments(base, refuse_predictor),
            change_arguments(base.encoder, self.begin),
            *(change_arguments(layer, place_tokens) for layer in between),
        ]

    def begin(self, arguments: Arguments) -> Arguments:
        """Add an empty dict of places to what the encoder hands to its layers."""
        video = arguments.get(0, "pixel_values_videos")
        side = self.config.crop_size
        if tuple(video.shape[-2:]) != (side, side):
            raise ValueError(
                f"V-JEPA 2 places patches on frames of {side}×{side} pixels (config.crop_size), "
                f"got {video.shape[-2]}×{video.shape[-1]}"
            )
        return replace(arguments, named={**arguments.named, PLACES: {}})


def places_of(arguments: Arguments) -> dict[int, Tensor]:
    """Give the dict of this forward: number of tokens left to their (b, n) places."""
    if PLACES not in arguments.named:
        raise RuntimeError(
            "the encoder of V-JEPA 2 handed no named arguments on to its layers; "
            "transformers 5 does, other versions are not supported"
        )
    return arguments.named[PLACES]


def place_tokens(arguments: Arguments) -> Arguments:
    """Tell a layer the places of its tokens, once some were dropped."""
    places = places_of(arguments).get(arguments.get(0, "hidden_states").shape[1])
    return arguments if places is None else arguments.put(1, "position_mask", places)


def refuse_predictor(arguments: Arguments) -> Arguments:
    """Refuse what counts on all tokens: the predictor, and masks of the tokens."""
    masks = (arguments.get(1, "context_mask"), arguments.get(2, "target_mask"))
    has_masks = any(mask is not None for mask in masks)
    if has_masks or not arguments.get(3, "skip_predictor"):
        raise ValueError(
            "V-JEPA 2's predictor and masks count on all tokens: with selectors, call "
            "model(video, skip_predictor=True) without masks"
        )
    return arguments
