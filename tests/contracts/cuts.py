"""Models run by hand, block by block, with patches cut off between: no hook, no adapter.

Every family has its own function, written from what the host's code does, so that an adapter that
misreads a host's token order or sizes does not find the same mistake here.
"""

import copy
from dataclasses import dataclass

import torch
import torch.nn.functional as F
from torch import Tensor, nn

from tokenselect import TokenGrid


@dataclass(frozen=True)
class Cut:
    """What stays before a block, counted in the grid that comes to it; the same for all clips."""

    frames: tuple[int, ...] | None = None
    rows: tuple[int, int] | None = None
    columns: tuple[int, int] | None = None

    def of(self, patches: Tensor) -> Tensor:
        """Cut (b, t, h, w, ...) patches."""
        if self.frames is not None:
            patches = patches[:, list(self.frames)]
        if self.rows is not None and self.columns is not None:
            patches = patches[:, :, slice(*self.rows), slice(*self.columns)]
        return patches


Cuts = dict[int, Cut]


def cut_tokens(
    tokens: Tensor, thw: tuple[int, int, int], cut: Cut, *, num_prefix: int
) -> tuple[Tensor, tuple[int, int, int]]:
    """Cut (b, p + t·h·w, c) tokens in (t, h, w) order."""
    prefix, patches = tokens[:, :num_prefix], tokens[:, num_prefix:]
    patches = cut.of(patches.reshape(len(tokens), *thw, -1))
    t, h, w = patches.shape[1:4]
    return torch.cat([prefix, patches.flatten(1, 3)], dim=1), (t, h, w)


def run_own(model: nn.Module, video: Tensor, cuts: Cuts) -> Tensor:
    grid = model.embed(video)
    for index, block in enumerate(model.blocks):
        if index in cuts:
            grid = TokenGrid.from_patches(cuts[index].of(grid.patches), grid.prefix)
        grid = block(grid)
    if len(model.blocks) in cuts:
        grid = TokenGrid.from_patches(cuts[len(model.blocks)].of(grid.patches), grid.prefix)
    return model.head(grid)


def run_torchvision_mvit(model: nn.Module, video: Tensor, cuts: Cuts) -> Tensor:
    volume = model.conv_proj(video)  # (b, c, t, h, w)
    thw = tuple(volume.shape[2:])
    tokens = model.pos_encoding(volume.flatten(2).transpose(1, 2))
    for index, block in enumerate(model.blocks):
        if index in cuts:
            tokens, thw = cut_tokens(tokens, thw, cuts[index], num_prefix=1)
        tokens, thw = block(tokens, thw)
    if len(model.blocks) in cuts:
        tokens, _ = cut_tokens(tokens, thw, cuts[len(model.blocks)], num_prefix=1)
    return model.head(model.norm(tokens)[:, 0])


def run_pytorchvideo_mvit(model: nn.Module, video: Tensor, cuts: Cuts) -> Tensor:
    thw = (5, 12, 8)
    tokens = model.cls_positional_encoding(model.patch_embed(video))
    num_prefix = tokens.shape[1] - 5 * 12 * 8
    for index, block in enumerate(model.blocks):
        if index in cuts:
            tokens, thw = cut_tokens(tokens, thw, cuts[index], num_prefix=num_prefix)
        tokens, thw = block(tokens, list(thw))
    if len(model.blocks) in cuts:
        tokens, _ = cut_tokens(tokens, thw, cuts[len(model.blocks)], num_prefix=num_prefix)
    return model.head(model.norm_embed(tokens))


def run_slowfast_mvit(model: nn.Module, videos: list[Tensor], cuts: Cuts) -> Tensor:
    thw = (5, 12, 12)
    tokens, _ = model.patch_embed(videos[0])
    tokens = torch.cat([model.cls_token.expand(len(tokens), -1, -1), tokens], dim=1)
    if model.use_abs_pos:
        space, time = model.pos_embed_spatial, model.pos_embed_temporal
        places = (time[:, :, None] + space[:, None]).flatten(1, 2)  # (1, t·h·w, c)
        tokens = tokens + torch.cat([model.pos_embed_class, places], dim=1)
    for index, block in enumerate(model.blocks):
        if index in cuts:
            tokens, thw = cut_tokens(tokens, thw, cuts[index], num_prefix=1)
        tokens, thw = block(tokens, list(thw))
    if len(model.blocks) in cuts:
        tokens, _ = cut_tokens(tokens, thw, cuts[len(model.blocks)], num_prefix=1)
    return model.head(model.norm(tokens)[:, 0])


def run_swin3d(model: nn.Module, video: Tensor, cuts: Cuts) -> Tensor:
    patches = model.patch_embed(video)
    index = 0
    for stage in model.features:
        if not isinstance(stage, nn.Sequential):
            patches = stage(patches)  # merges patches
            continue
        for block in stage:
            patches = block(cuts[index].of(patches) if index in cuts else patches)
            index += 1
    patches = cuts[index].of(patches) if index in cuts else patches
    return model.head(model.norm(patches).mean(dim=(1, 2, 3)))


def run_videomae(model: nn.Module, video: Tensor, cuts: Cuts) -> Tensor:
    thw = (5, 6, 4)
    tokens = model.videomae.embeddings(video, None)
    for index, layer in enumerate(model.videomae.encoder.layer):
        if index in cuts:
            tokens, thw = cut_tokens(tokens, thw, cuts[index], num_prefix=0)
        tokens = layer(tokens)
    if index + 1 in cuts:
        tokens, _ = cut_tokens(tokens, thw, cuts[index + 1], num_prefix=0)
    return model.classifier(model.fc_norm(tokens.mean(1)))


def run_vivit(model: nn.Module, video: Tensor, cuts: Cuts) -> Tensor:
    thw = (5, 6, 4)
    tokens = model.vivit.embeddings(video)
    for index, layer in enumerate(model.vivit.layers):
        if index in cuts:
            tokens, thw = cut_tokens(tokens, thw, cuts[index], num_prefix=1)
        tokens = layer(tokens)
    if index + 1 in cuts:
        tokens, _ = cut_tokens(tokens, thw, cuts[index + 1], num_prefix=1)
    return model.classifier(model.vivit.layernorm(tokens)[:, 0])


def run_timesformer(model: nn.Module, video: Tensor, cuts: Cuts) -> Tensor:
    """Build every layer anew for the size of what is left; patches come in (h, w, t) order."""
    base, t, h, w = model.timesformer, 5, 4, 4
    tokens = base.embeddings(video)
    for index, layer in enumerate(base.encoder.layer):
        if index in cuts:
            patches = tokens[:, 1:].reshape(len(tokens), h, w, t, -1).movedim(3, 1)
            patches = cuts[index].of(patches).movedim(1, 3)  # (b, h, w, t, c)
            h, w, t = patches.shape[1:4]
            tokens = torch.cat([tokens[:, :1], patches.flatten(1, 3)], dim=1)
        config = copy.deepcopy(model.config)
        config.num_frames, config.image_size = t, w * config.patch_size
        twin = type(layer)(config, index).eval()
        twin.load_state_dict(layer.state_dict())
        tokens = twin(tokens)[0]
    return model.classifier(base.layernorm(tokens)[:, 0])


def run_vjepa2(model: nn.Module, video: Tensor, cuts: Cuts) -> Tensor:
    """Keep all tokens in their places and hide the dropped ones from the others' attention."""
    encoder = model.vjepa2.encoder
    tokens = encoder.embeddings(video)
    left = torch.arange(tokens.shape[1]).reshape(1, 5, 4, 4)  # the tokens that are still seen
    for index, layer in enumerate(encoder.layer):
        if index in cuts:
            left = cuts[index].of(left)
        is_seen = torch.zeros(tokens.shape[1], dtype=torch.bool)
        is_seen[left.flatten()] = True
        tokens = run_vjepa2_layer(layer, tokens, is_seen)
    left = cuts[index + 1].of(left) if index + 1 in cuts else left
    tokens = encoder.layernorm(tokens)[:, left.flatten()]
    return model.classifier(model.pooler(tokens))


def run_vjepa2_layer(layer: nn.Module, tokens: Tensor, is_seen: Tensor) -> Tensor:
    """Run a layer whose tokens attend to those of `is_seen` only; every token has its place."""
    attention, normed = layer.attention, layer.norm1(tokens)
    projections = (attention.query, attention.key, attention.value)
    heads = (attention.num_attention_heads, attention.attention_head_size)
    q, k, v = (p(normed).unflatten(2, heads).transpose(1, 2) for p in projections)
    ids = torch.arange(tokens.shape[1])
    places = (ids // 16, ids % 16 // 4, ids % 4)  # frames of 4×4 patches
    q, k = (attention.apply_rotary_embeddings(x, places) for x in (q, k))
    mixed = F.scaled_dot_product_attention(q, k, v, attn_mask=is_seen.expand(len(ids), -1))
    tokens = tokens + attention.proj(mixed.transpose(1, 2).flatten(2))
    return tokens + layer.mlp(layer.norm2(tokens))
