"""Which framework wrote a state dict, told from its names and shapes."""

import re
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from functools import partial
from typing import Any, cast

from torch import Tensor, nn

from tokenselect.adapters.huggingface import names_in_files
from tokenselect.backbones import mvit, video_swin
from tokenselect.plan import CHILD, SELECTORS

SCORER = re.compile(r"(time|space)_score_predictor\.(\d+)\.score_network\.(in_conv|out_conv)\.(.*)")
KINDS = {"time": "T", "space": "S"}
SCORER_PARTS = {"in_conv": "embed", "out_conv": "score"}


def rename_scorers(state: Mapping[str, Tensor], *, sites: Sequence[str]) -> dict[str, Tensor]:
    """Move the authors' scorers to the model's sites.

    Their names count the frame sites and the region sites from 0 and do not say before which block
    they are: the first goes to the model's first site of that kind, and so on.
    """
    renamed = {}
    for name, weight in state.items():
        match = SCORER.fullmatch(name)
        if match is not None:
            kind, index, part, rest = match.groups()
            labels = [label for label in sites if label.startswith(KINDS[kind])]
            if int(index) < len(labels):
                label = labels[int(index)]
                name = f"{SELECTORS}{label}.scoring.network.{SCORER_PARTS[part]}.{rest}"
        renamed[name] = weight
    return renamed


def is_scorer(name: str) -> bool:
    """Tell whether a name is of a scorer that found no site."""
    return SCORER.fullmatch(name) is not None


State = Mapping[str, Tensor]


@dataclass(frozen=True)
class Layout:
    """A way to name the weights of one of our backbones."""

    title: str  # who names them so
    family: type[nn.Module]  # our class they are for
    marks: tuple[str, ...]  # names that all such state dicts have, and none other has together
    # gives a state dict our names, for a model; None for names that are ours
    rename: Callable[[State, Any], dict[str, Tensor]] | None = None
    # dimensions of the first mark, the patch embedding's kernel, where this tells videos from
    # images
    patch_dims: int | None = None

    def fits(self, state: State) -> bool:
        """Tell whether a state dict is named so."""
        if not all(mark in state for mark in self.marks):
            return False
        return self.patch_dims is None or state[self.marks[0]].ndim == self.patch_dims


def rename_mvit(rename: Any, space: str, state: State, model: mvit.MViT) -> dict[str, Tensor]:
    """Rename an MViT; `space` names its table of space, rows and columns in one."""
    _, h, w = model.embed_thw(*model.default_input)
    is_same_size = state[space].shape[-2] == h * w
    return rename(state, grid_size=(h, w) if is_same_size else None)


def inflate(rename: Any, state: State, model: video_swin.VideoSwin) -> dict[str, Tensor]:
    """Rename and inflate an image Swin."""
    patch, window = model.embedding.patch, window_of(model)
    return video_swin.inflate_image(rename(state), patch=patch, window=window)


def window_of(model: video_swin.VideoSwin) -> tuple[int, int, int]:
    """Give the largest window of a model, the same in all its blocks."""
    return cast(Any, model.blocks[0]).attention.window


SWIN = ("patch_embed.proj.weight", "layers.0.blocks.0.attn.qkv.weight")
# fmt: off
LAYOUTS = (
    Layout("tokenselect MViT", mvit.MViT,
           ("patch.weight", "positions.space", "blocks.0.norm_attention.weight")),
    Layout("tokenselect Video Swin", video_swin.VideoSwin,
           ("embedding.project.weight", "blocks.0.attention.bias_table")),
    Layout("torchvision MViT", mvit.MViT, ("conv_proj.weight", "pos_encoding.spatial_pos"),
           partial(rename_mvit, mvit.from_torchvision, "pos_encoding.spatial_pos")),
    Layout("SlowFast MViT", mvit.MViT,
           ("patch_embed.proj.weight", "pos_embed_spatial", "blocks.0.attn.pool_k.weight"),
           partial(rename_mvit, mvit.from_slowfast, "pos_embed_spatial")),
    Layout("PyTorchVideo MViT", mvit.MViT,
           ("patch_embed.patch_model.weight", "cls_positional_encoding.pos_embed_spatial"),
           partial(rename_mvit, mvit.from_slowfast, "cls_positional_encoding.pos_embed_spatial")),
    Layout("torchvision Swin3D", video_swin.VideoSwin,
           ("patch_embed.proj.weight", "features.0.0.attn.qkv.weight"),
           lambda state, model: video_swin.from_torchvision(state), 5),
    Layout("torchvision image Swin", video_swin.VideoSwin,
           ("features.0.0.weight", "features.1.0.attn.relative_position_bias_table"),
           partial(inflate, video_swin.from_torchvision), 4),
    Layout("mmaction2 Video Swin", video_swin.VideoSwin,
           ("backbone.patch_embed.proj.weight", "backbone.layers.0.blocks.0.attn.qkv.weight"),
           lambda state, model: video_swin.from_mmaction(state), 5),
    Layout("Video-Swin-Transformer", video_swin.VideoSwin, SWIN,
           lambda state, model: video_swin.from_mmaction(state), 5),
    Layout("image Swin", video_swin.VideoSwin, SWIN, partial(inflate, video_swin.from_mmaction), 4),
)
# fmt: on


def convert(state: State, model: nn.Module) -> tuple[str, dict[str, Tensor], list[str]]:
    """Give a state dict our names and the model's table sizes.

    Returns:
        Who named it so, the state dict, and the tables that were resized. Names that are the
        model's own already stay as they are, whatever the model.
    """
    layout = next((layout for layout in LAYOUTS if layout.fits(state)), None)
    if layout is None or not isinstance(model, layout.family):
        names, own = names_in_files(model), model.state_dict().keys()
        renamed = {names.get(name, name): value for name, value in state.items()}
        if len(own & renamed.keys()) >= len(own) / 2:
            return "the model's own names", renamed, []
    if layout is None:
        known = ", ".join(layout.title for layout in LAYOUTS)
        raise ValueError(
            f"its names ({', '.join(sorted(state)[:3])}, …) match none of these: {known}"
        )
    if not isinstance(model, layout.family):
        raise ValueError(
            f"{layout.title} weights are for a {layout.family.__name__}, and the model is a "
            f"{type(model).__name__}"
        )
    renamed = dict(state) if layout.rename is None else layout.rename(state, model)
    if isinstance(model, mvit.MViT):
        resized = mvit.resize_positions(renamed, thw=model.embed_thw(*model.default_input))
    else:
        resized = video_swin.resize_biases(renamed, window=window_of(cast(Any, model)))
    changed = sorted(name for name in resized if resized[name].shape != renamed[name].shape)
    sites = list(cast(Mapping[str, Any], getattr(model, CHILD, {})))
    return layout.title, rename_scorers(resized, sites=sites), changed
