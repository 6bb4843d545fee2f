"""Small towers that encode frames on their own, and models of published code; cut by hand."""

import importlib
from types import ModuleType

import pytest
import torch
from torch import Tensor, nn

from tests.contracts.cuts import Cuts, cut_tokens
from tests.contracts.hosts import scramble, torchvision_video, transformers

TOWER = {
    "hidden_size": 16,
    "intermediate_size": 24,
    "num_hidden_layers": 3,
    "num_attention_heads": 2,
    "image_size": 32,
    "patch_size": 8,
}


def clip() -> nn.Module:
    """Build CLIP's vision tower for clips of 5 frames of 4×4 patches."""
    library = transformers()
    model = library.CLIPVisionModel(library.CLIPVisionConfig(**TOWER))
    model.config.num_frames = 5
    return scramble(model)


def siglip() -> nn.Module:
    """Build SigLIP's vision tower for clips of 5 frames of 4×4 patches."""
    library = transformers()
    model = library.SiglipVisionModel(library.SiglipVisionConfig(**TOWER))
    model.config.num_frames = 5
    return scramble(model)


def x_clip() -> nn.Module:
    """Build X-CLIP's vision tower for clips of 5 frames of 4×4 patches."""
    library = transformers()
    config = library.XCLIPVisionConfig(**TOWER, num_frames=5, drop_path_rate=0.0)
    return scramble(library.XCLIPVisionModel(config))


def timm_vit(*, global_pool: str = "token") -> nn.Module:
    """Build timm's ViT with a class token and two registers for clips of 5 frames."""
    torchvision_video("mvit")
    library = pytest.importorskip("timm.models.vision_transformer", reason="timm is not installed")
    model = library.VisionTransformer(
        img_size=32,
        patch_size=8,
        embed_dim=16,
        depth=3,
        num_heads=2,
        num_classes=7,
        reg_tokens=2,
        global_pool=global_pool,
    )
    model.num_frames = 5
    return scramble(model)


def hiera() -> nn.Module:
    """Build Hiera on 5×4×3 mask units of 4×4 patches each, in three stages."""
    torchvision_video("mvit")
    library = pytest.importorskip("hiera.hiera", reason="hiera-transformer is not installed")
    model = library.Hiera(
        input_size=(10, 64, 48),
        embed_dim=8,
        num_classes=7,
        stages=(1, 2, 1),
        q_pool=2,
        q_stride=(1, 2, 2),
        mask_unit_size=(1, 4, 4),
        mask_unit_attn=(True, False, False),
        patch_kernel=(3, 7, 7),
        patch_stride=(2, 4, 4),
        patch_padding=(1, 3, 3),
        sep_pos_embed=True,
    )
    model.head.act_func = nn.Identity()  # a lambda, which no pickle takes
    return scramble(model)


def published(module: str) -> ModuleType:
    """Import the authors' code, which is no package, if its folder is on the path; else ours."""
    torchvision_video("mvit")
    try:
        return importlib.import_module(f"models.{module}")
    except ImportError:
        return importlib.import_module(f"tests.contracts.stand_ins.{module}")


def videomae_v2() -> nn.Module:
    """Build VideoMAE V2 on a grid of 5×6×4."""
    library = published("modeling_finetune")
    model = library.VisionTransformer(
        img_size=(48, 32),
        patch_size=8,
        embed_dim=16,
        depth=3,
        num_heads=2,
        num_classes=7,
        all_frames=10,
        init_scale=1.0,
    )
    return scramble(model)


def internvideo2(*, is_fused: bool = False) -> nn.Module:
    """Build InternVideo2 on a grid of 5×4×4; the fused one passes two tensors on."""
    fused = dict.fromkeys(("use_flash_attn", "use_fused_rmsnorm", "use_fused_mlp"), False)
    library = published("internvideo2")
    model = library.InternVideo2(
        img_size=32,
        patch_size=8,
        embed_dim=16,
        depth=3,
        num_heads=2,
        mlp_ratio=2,
        num_frames=5,
        num_classes=7,
        attn_pool_num_heads=2,
        clip_embed_dim=16,
        drop_path_rate=0.0,
        **fused,
    )
    if is_fused:
        for block in model.blocks:
            block.use_fused_rmsnorm = True
            block.norm1 = library.DropoutAddRMSNorm(16, prenorm=True)
            block.norm2 = library.DropoutAddRMSNorm(16, prenorm=True)
    return scramble(model)


def run_internvideo2(model: nn.Module, video: Tensor, cuts: Cuts) -> Tensor:
    tokens = model.patch_embed(video).flatten(1, 2)
    tokens = torch.cat([model.cls_token.expand(len(tokens), -1, -1), tokens], dim=1)
    tokens, before, grid = tokens + model.pos_embed, None, (5, 4, 4)
    for index, block in enumerate([*model.blocks, None]):
        if index in cuts:
            old = grid
            tokens, grid = cut_tokens(tokens, old, cuts[index], num_prefix=1)
            if before is not None:
                before, _ = cut_tokens(before, old, cuts[index], num_prefix=1)
        if block is not None:
            tokens = block(tokens, residual=before)
            tokens, before = tokens if isinstance(tokens, tuple) else (tokens, None)
    tokens = tokens if before is None else tokens + before
    return model.head(model.fc_norm(model.clip_projector(tokens)))


def cut_frames(tokens: Tensor, hw: tuple[int, int], cuts: Cuts, index: int, prefix: int):
    """Cut (b·5, prefix + h·w, c) frames of two clips; give them back with rows and columns."""
    if index not in cuts:
        return tokens, hw
    clips = tokens.unflatten(0, (2, -1))
    own, patches = clips[:, :, :prefix], clips[:, :, prefix:].unflatten(2, hw)
    if cuts[index].frames is not None:
        own = own[:, list(cuts[index].frames)]
    patches = cuts[index].of(patches)
    frames = torch.cat([own, patches.flatten(2, 3)], dim=2)
    return frames.flatten(0, 1), tuple(patches.shape[2:4])


def run_clip(model: nn.Module, video: Tensor, cuts: Cuts) -> Tensor:
    tokens, hw = model.pre_layrnorm(model.embeddings(video)), (4, 4)
    for index, layer in enumerate(model.encoder.layers):
        tokens, hw = cut_frames(tokens, hw, cuts, index, 1)
        tokens = layer(tokens, None)
    tokens, _ = cut_frames(tokens, hw, cuts, index + 1, 1)
    return model.post_layernorm(tokens[:, 0])


def run_siglip(model: nn.Module, video: Tensor, cuts: Cuts) -> Tensor:
    tower = getattr(model, "vision_model", model)
    tokens, hw = tower.embeddings(video), (4, 4)
    for index, layer in enumerate(tower.encoder.layers):
        tokens, hw = cut_frames(tokens, hw, cuts, index, 0)
        tokens = layer(tokens, None)
    tokens, _ = cut_frames(tokens, hw, cuts, index + 1, 0)
    return tower.head(tower.post_layernorm(tokens))


def run_x_clip(model: nn.Module, video: Tensor, cuts: Cuts) -> Tensor:
    """Pass the messages between frames by hand: the layers believe in five frames."""
    tokens, hw = model.pre_layernorm(model.embeddings(video)), (4, 4)
    for index, layer in enumerate(model.encoder.layers):
        tokens, hw = cut_frames(tokens, hw, cuts, index, 1)
        words = layer.message_fc(tokens[:, 0]).unflatten(0, (2, -1))
        words = words + layer.message_attn(layer.message_ln(words))[0]
        longer = torch.cat([tokens, words.flatten(0, 1)[:, None]], dim=1)
        longer = longer + layer.self_attn(layer.layer_norm1(longer), attention_mask=None)[0]
        tokens = longer[:, :-1]
        tokens = tokens + layer.mlp(layer.layer_norm2(tokens))
    tokens, _ = cut_frames(tokens, hw, cuts, index + 1, 1)
    return model.post_layernorm(tokens[:, 0])


def run_timm(model: nn.Module, video: Tensor, cuts: Cuts) -> Tensor:
    tokens, hw = model._pos_embed(model.patch_embed(video)), (4, 4)
    for index, block in enumerate(model.blocks):
        tokens, hw = cut_frames(tokens, hw, cuts, index, 3)
        tokens = block(tokens)
    tokens, _ = cut_frames(tokens, hw, cuts, index + 1, 3)
    return model.forward_head(model.norm(tokens))


def run_hiera(model: nn.Module, video: Tensor, cuts: Cuts) -> Tensor:
    """Number the mask units before the patches are reordered, and follow them by their numbers."""
    tokens = model.patch_embed(video) + model.get_pos_embed()
    t, h, w = model.tokens_spatial_shape
    units = torch.arange(t * (h // 4) * (w // 4)).reshape(1, t, h // 4, w // 4)
    of_patch = units.repeat_interleave(4, 2).repeat_interleave(4, 3).flatten(1)  # (1, t·h·w)
    tokens, of_patch = model.unroll(tokens), model.unroll(of_patch[..., None].float())[0, :, 0]
    for index, block in enumerate(model.blocks):
        if index in cuts:
            units = cuts[index].of(units)
            kept = torch.isin(of_patch, units.flatten())
            tokens, of_patch = tokens[:, kept], of_patch[kept]
        tokens = block(tokens)
        of_patch = of_patch[: tokens.shape[1]]  # pooled over the first axis of what is left
    if index + 1 in cuts:
        units = cuts[index + 1].of(units)
        tokens = tokens[:, torch.isin(of_patch, units.flatten())]
    return model.head(model.norm(tokens.mean(dim=1)))


def run_videomae_v2(model: nn.Module, video: Tensor, cuts: Cuts) -> Tensor:
    tokens = model.patch_embed(video) + model.pos_embed
    grid = (5, 6, 4)
    for index, block in enumerate([*model.blocks, nn.Identity()]):
        if index in cuts:
            patches = cuts[index].of(tokens.unflatten(1, grid))
            tokens, grid = patches.flatten(1, 3), tuple(patches.shape[1:4])
        tokens = block(tokens)
    return model.head(model.fc_norm(tokens.mean(1)))
