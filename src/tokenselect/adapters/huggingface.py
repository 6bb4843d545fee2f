"""Video transformers of Hugging Face: VideoMAE, TimeSformer, ViViT and V-JEPA 2."""

import sys
from collections.abc import Sequence
from copy import copy
from dataclasses import replace
from typing import Any, cast

import torch
from torch import Tensor, nn

from tokenselect.adapters import adapter
from tokenselect.adapters.adapter import Arguments, Changes, SequenceAdapter, change_arguments
from tokenselect.grid import TokenGrid
from tokenselect.plan import THW, SelectionPlan


class HuggingFaceAdapter(SequenceAdapter):
    """What they have in common: the grid follows from the configuration and the plan."""

    layers = "base_model.encoder.layer"
    norm = "layernorm_before"
    argument = "hidden_states"

    def __init__(self, model: nn.Module) -> None:
        super().__init__(model)
        self.config = cast(Any, model.config)

    def embed_thw(self, model: nn.Module) -> THW | None:
        patches = cast(Any, model.base_model).embeddings.patch_embeddings
        t, h, w = patches.projection.kernel_size
        height, width = patches.image_size
        return self.config.num_frames // t, height // h, width // w


class VideoMAEAdapter(HuggingFaceAdapter):
    """`transformers.VideoMAEModel` and `VideoMAEForVideoClassification`."""

    is_sequence = True

    def __init__(self, model: nn.Module) -> None:
        super().__init__(model)
        adapter.need_mean_pooling(self.config.use_mean_pooling or not hasattr(model, "classifier"))


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
        patches = grid.patches.permute(0, 2, 3, 1, 4).flatten(1, 3)
        return arguments.put(0, "hidden_states", torch.cat([grid.prefix, patches], dim=1))

    def embed_thw(self, model: nn.Module) -> THW | None:
        side = self.config.image_size // self.config.patch_size
        return self.config.num_frames, side, side

    def attach(self, model: nn.Module, plan: SelectionPlan, grids: Sequence[THW]) -> Changes:
        """Give each layer that works on a smaller grid a configuration that says so."""
        base = cast(nn.Module, model.base_model)
        changes: list[adapter.Removable] = [change_arguments(base, self.check_frames)]
        for block, (t, h, w) in zip(self.blocks(model), grids, strict=True):
            if (t, h, w) != self.embed_thw(model):
                config = copy(self.config)
                config.num_frames = t
                config.image_size = w * config.patch_size  # rows follow from the number of tokens
                changes.append(adapter.OtherAttribute(block, "config", config))
        return changes

    def check_frames(self, arguments: Arguments) -> Arguments:
        """Refuse a clip of another length: the layers count on that of the configuration."""
        found, frames = arguments.get(0, "pixel_values").shape[1], self.config.num_frames
        if found != frames:
            raise ValueError(
                f"TimeSformer's layers expect clips of {frames} frames (config.num_frames), got "
                f"{found}: set it before you build the model"
            )
        return arguments


class VivitAdapter(HuggingFaceAdapter):
    """`transformers.VivitModel` and `VivitForVideoClassification`."""

    is_sequence = True
    num_prefix = 1
    layers = "base_model.layers"

    def __init__(self, model: nn.Module) -> None:
        super().__init__(model)
        if not hasattr(model.base_model, "layers"):
            raise ValueError(
                "selection in ViViT needs transformers 5; this model is from an older version"
            )

    def attach(self, model: nn.Module, plan: SelectionPlan, grids: Sequence[THW]) -> Changes:
        """Take the mask from the layers: an exported model has one, as large as all the tokens."""
        first = min(site.block for site in plan)
        return [
            change_arguments(cast(nn.Module, model.base_model), refuse_mask),
            *(change_arguments(layer, drop_mask) for layer in self.blocks(model)[first:]),
        ]

    def class_attention(self, block: nn.Module, grid: TokenGrid) -> Tensor:
        tokens = cast(nn.Module, block.layernorm_before)(grid.tokens)
        return adapter.class_attention(block.attention, tokens).unflatten(1, grid.thw)


def refuse_mask(arguments: Arguments) -> Arguments:
    """Refuse a mask of the user: the tokens it hides are no longer where it says."""
    if arguments.get(2, "attention_mask") is not None:
        raise ValueError("ViViT with selectors takes no attention_mask, got one")
    return arguments


def drop_mask(arguments: Arguments) -> Arguments:
    """Call a layer without a mask; the one that is dropped hides nothing."""
    return arguments.put(1, "attention_mask", None)


class VJEPA2Adapter(HuggingFaceAdapter):
    """`transformers.VJEPA2Model` and `VJEPA2ForVideoClassification`; clips of any length.

    Kept tokens keep the places they had: the context holds them by the number of tokens left.
    """

    is_sequence = True
    norm = "norm1"

    def read(self, arguments: Arguments, thw: THW | None) -> TokenGrid:
        """Lay the tokens out, with their places; the number of frames is that of the clip."""
        assert thw is not None
        tokens = arguments.get(0, "hidden_states")
        _, h, w = thw
        grid = TokenGrid(tokens, (tokens.shape[1] // (h * w), h, w))
        places = arguments.named.get(adapter.CONTEXT, {}).get(tokens.shape[1])
        return replace(grid, positions=places).placed()  # by number, if none was dropped

    def write(self, grid: TokenGrid, arguments: Arguments) -> Arguments:
        """Put the tokens back and, if some were dropped, the places of those that are left."""
        before = arguments.get(0, "hidden_states").shape[1]
        arguments = super().write(grid, arguments)
        if grid.tokens.shape[1] != before:
            assert grid.positions is not None
            adapter.context_of(arguments)[grid.tokens.shape[1]] = grid.positions
        return place_tokens(arguments)

    def embed_thw(self, model: nn.Module) -> THW | None:
        side = self.config.crop_size // self.config.patch_size
        return self.config.frames_per_clip // self.config.tubelet_size, side, side

    def attach(self, model: nn.Module, plan: SelectionPlan, grids: Sequence[THW]) -> Changes:
        """Begin a context, and give the places to the layers between the sites."""
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
        """Refuse frames of another size, whose places would be wrong, and begin a context."""
        video = arguments.get(0, "pixel_values_videos")
        side = self.config.crop_size
        if tuple(video.shape[-2:]) != (side, side):
            raise ValueError(
                f"V-JEPA 2 places patches on frames of {side}×{side} pixels (config.crop_size), "
                f"got {video.shape[-2]}×{video.shape[-1]}"
            )
        return adapter.begin_context(arguments)


def place_tokens(arguments: Arguments) -> Arguments:
    """Tell a layer the places of its tokens, once some were dropped."""
    places = adapter.context_of(arguments).get(arguments.get(0, "hidden_states").shape[1])
    return arguments if places is None else arguments.put(1, "position_mask", places)


def refuse_predictor(arguments: Arguments) -> Arguments:
    """Refuse what counts on all tokens: the predictor, and masks of the tokens."""
    masks = (arguments.get(1, "context_mask"), arguments.get(2, "target_mask"))
    has_masks = any(mask is not None for mask in masks)
    if has_masks or not arguments.get(3, "skip_predictor"):
        raise ValueError(
            "V-JEPA 2's predictor and masks need all tokens: with selectors, call "
            "model(video, skip_predictor=True) without masks"
        )
    return arguments


def is_pretrained(model: nn.Module) -> bool:
    """Tell whether a model is one of transformers, which writes its own files."""
    return hasattr(getattr(model, "config", None), "save_pretrained")


def names_in_files(model: nn.Module) -> dict[str, str]:
    """Map the names that transformers writes to files, where it changes them, to the model's own.

    Files of VideoMAE and ViViT keep the names of older versions; `from_pretrained` renames them.
    """
    loading = sys.modules.get("transformers.core_model_loading")
    if loading is None or not is_pretrained(model):
        return {}
    own = {id(tensor): (name, tensor) for name, tensor in model.state_dict().items()}
    written = loading.revert_weight_conversion(model, {n: tensor for n, tensor in own.values()})
    pairs = {new: own[id(tensor)][0] for new, tensor in written.items() if id(tensor) in own}
    return {new: name for new, name in pairs.items() if new != name}


def rename_on_load(model: nn.Module, state: dict[str, Tensor], prefix: str, *_: object) -> None:
    """Take the names of files, too, where a state dict is loaded, as a resumed Trainer does."""
    for new, name in names_in_files(model).items():
        if prefix + new in state and prefix + name not in state:
            state[prefix + name] = state.pop(prefix + new)
