"""Weights of any framework into a model: recognised by names and shapes, renamed, fitted."""

import logging
import re
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import Any, cast

from torch import Tensor, nn

from tokenselect.adapters.huggingface import names_in_files
from tokenselect.backbones import mvit, video_swin
from tokenselect.plan import CHILD, SELECTORS
from tokenselect.weights.files import read_weights, unwrap

logger = logging.getLogger(__name__)

State = Mapping[str, Tensor]
Shape = tuple[int, ...]
HEAD = "classifier."
NUM_LISTED = 5
SCORER = re.compile(r"(time|space)_score_predictor\.(\d+)\.score_network\.(in_conv|out_conv)\.(.*)")
KINDS = {"time": "T", "space": "S"}
SCORER_PARTS = {"in_conv": "embed", "out_conv": "score"}


def rename_scorers(state: State, *, sites: Sequence[str]) -> dict[str, Tensor]:
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


@dataclass(frozen=True)
class Layout:
    """A way to name the weights of one of our backbones."""

    title: str  # who names them so
    family: type[nn.Module]  # our class they are for
    marks: tuple[str, ...]  # names that all such state dicts have, and none other has together
    # gives a state dict our names, for a model; None for names that are ours
    rename: Callable[[State, Any], dict[str, Tensor]] | None = None
    # dimensions of the first mark, the patch embedding, where this tells videos from images
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
    renamed, patch = rename(state), model.embedding.patch
    return video_swin.inflate_image(renamed, patch=patch, window=window_of(model))


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
    """Tell who named a state dict so; give it our names and table sizes, and list those resized.

    Names that are the model's own already stay as they are, whatever the model.
    """
    layout = next((layout for layout in LAYOUTS if layout.fits(state)), None)
    if layout is None or not isinstance(model, layout.family):
        names, own = names_in_files(model), model.state_dict().keys()
        renamed = {names.get(name, name): value for name, value in state.items()}
        if len(own & renamed.keys()) >= len(own) / 2:
            return "the model's own names", renamed, []
    if layout is None:
        known = ", ".join(layout.title for layout in LAYOUTS)
        some = ", ".join(sorted(state)[:3])
        raise ValueError(f"its names ({some}, …) match none of these: {known}")
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


class MismatchError(ValueError):
    """The weights are of another model; the message lists what fits and what does not."""


@dataclass(frozen=True)
class LoadedWeights:
    """What `load_weights` did."""

    layout: str  # who named the weights so
    resized: list[str]  # tables that were interpolated to the model's input size or window
    initial: list[str]  # parameters left as they were: a classifier of other classes, new selectors
    unused: list[str]  # weights that the model has no place for: selectors of other sites


def load_weights(
    model: nn.Module,
    source: str | Path | Mapping[str, Tensor],
    *,
    title: str | None = None,
    class_names: Sequence[str] | None = None,
) -> LoadedWeights:
    """Load weights of ours or of another framework into one of our models, in place.

    The framework is told from the names and shapes in it (`tokenselect.weights.load.LAYOUTS`).
    Tables of positions and relative biases are interpolated to the model's size. A classifier of
    other classes, and selectors that the weights do not have, stay as they are; both are told to
    the log. Anything else that does not fit is an error.

    Args:
        source: a file, a folder as `find_checkpoint` takes it, or a state dict.
        title: what messages call the weights, if not by their file.
        class_names: of the model. Weights that name other ones, or the same in another order, are
            of other classes.
    """
    metadata: Mapping[str, Any] = {}
    if isinstance(source, Mapping):
        title, state = title or "the state dict", unwrap(source)
    else:
        title, (state, metadata) = title or str(source), read_weights(source)
    try:
        layout, given, resized = convert(state, model)
    except ValueError as error:
        raise MismatchError(f"{title} cannot be loaded: {error}") from error
    own = {name: tuple(value.shape) for name, value in model.state_dict().items()}
    unused = sorted(name for name in given if name not in own and _may_lack(name, own))
    left_out = {*unused, *_other_classes(given, own)}
    if differ_in_names(metadata.get("class_names"), class_names):
        left_out |= {name for name in given if name.startswith(HEAD)}
    given = {name: value for name, value in given.items() if name not in left_out}
    initial = sorted(name for name in own if name not in given and _may_lack(name, given))
    _check(f"{title} ({layout})", given, own, set(initial))
    check_finite(given, title)
    model.load_state_dict(given, strict=False)
    _tell(title, initial, unused, is_loss=any(name.startswith(HEAD) for name in left_out))
    return LoadedWeights(layout, resized, initial, unused)


def _may_lack(name: str, others: Mapping[str, object]) -> bool:
    """Tell whether one side may have a parameter that the other has not."""
    if name.startswith(HEAD) or is_scorer(name):
        return True
    if not name.startswith(SELECTORS):
        return False
    site = ".".join(name.split(".")[:2]) + "."
    return not any(other.startswith(site) for other in others)


def differ_in_names(theirs: Sequence[str] | None, ours: Sequence[str] | None) -> bool:
    """Tell whether names that say what the classes are differ; bare numbers do not say it."""
    if not theirs or not ours or any(all(map(str.isdecimal, names)) for names in (theirs, ours)):
        return False
    return list(theirs) != list(ours)


def _other_classes(given: Mapping[str, Tensor], own: Mapping[str, Shape]) -> list[str]:
    """List the classifier's parameters if they differ in the number of classes only."""
    head = [name for name in own if name.startswith(HEAD) and name in given]
    shapes = [(tuple(given[name].shape), own[name]) for name in head]
    is_other = any(theirs[0] != ours[0] for theirs, ours in shapes)
    is_alike = all(theirs[1:] == ours[1:] for theirs, ours in shapes)
    return head if is_other and is_alike else []


def _check(
    title: str, given: Mapping[str, Tensor], own: Mapping[str, Shape], initial: set[str]
) -> None:
    """Raise `MismatchError` unless the rest fits exactly."""
    wrong = [n for n in own if n in given and given[n].shape != own[n]]
    missing = [name for name in own if name not in given and name not in initial]
    unknown = [name for name in given if name not in own]
    if not (wrong or missing or unknown):
        return
    fitting = len(own) - len(wrong) - len(missing) - len(initial)
    lines = [f"{title} does not fit the model: of its {len(own)} parameters {fitting} fit"]
    shapes = [f"{n} ({_sides(given[n].shape)}, the model's is {_sides(own[n])})" for n in wrong]
    kinds = {"of another shape": shapes, "missing": missing, "unknown to the model": unknown}
    for what, names in kinds.items():
        if names:
            more = f" and {len(names) - NUM_LISTED} more" if len(names) > NUM_LISTED else ""
            lines.append(f"  {what}: {', '.join(names[:NUM_LISTED])}{more}")
    if any("scoring.network.embed" in name for name in unknown):
        lines += ['  its selectors are those of the authors\' code: build with scorer="released"']
    raise MismatchError("\n".join(lines))


def check_finite(weights: Mapping[str, Tensor], title: str) -> None:
    """Refuse weights that would make every answer NaN."""
    for name, value in weights.items():
        if not value.is_meta and not value.isfinite().all():
            raise ValueError(f"{title} holds NaN or infinite values in {name}: it cannot be used")


def _sides(shape: Shape) -> str:
    return "×".join(map(str, shape)) or "a number"


def _tell(title: str, initial: list[str], unused: list[str], *, is_loss: bool) -> None:
    """Log what a user should know of; a classifier that was left out is a loss."""
    if any(name.startswith(HEAD) for name in initial):
        level = logging.WARNING if is_loss else logging.INFO
        text = "%s: no classifier for these classes: the model's starts untrained"
        logger.log(level, text, title)
    for what, names in (
        ("the model's selectors %s start untrained: they are not in the weights", initial),
        ("its selectors %s are not used: the model has no such sites", unused),
    ):
        selectors = [n for n in names if not n.startswith(HEAD)]
        sites = sorted({".".join(n.split(".")[:2]).removeprefix(SELECTORS) for n in selectors})
        if sites:
            logger.warning("%s: " + what, title, ", ".join(sites))
