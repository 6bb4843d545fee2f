"""The libraries whose models are under the contracts; tests skip, saying so, where one is missing.

Nothing is downloaded: models are built small, with random weights.
"""

import contextlib
import importlib
from types import ModuleType

import pytest
import torch
from torch import Tensor, nn

from benchmarks.torchvision_import import import_torchvision


def torchvision_video(module: str) -> ModuleType:
    """Import a module of `torchvision.models.video`."""
    try:
        return import_torchvision(f"torchvision.models.video.{module}")
    except ImportError as error:
        pytest.skip(f"torchvision is not installed: {error}")


def transformers() -> ModuleType:
    """Import transformers, which wants a torchvision that works or none."""
    with contextlib.suppress(ImportError):
        import_torchvision()
    return pytest.importorskip("transformers", reason="transformers is not installed")


def pytorchvideo() -> ModuleType:
    """Import the transformers of pytorchvideo, which needs torchvision."""
    torchvision_video("mvit")
    name = "pytorchvideo.models.vision_transformers"
    try:
        return importlib.import_module(name)
    except ImportError as error:
        pytest.skip(f"pytorchvideo is not installed: {error}")


def scramble(model: nn.Module) -> nn.Module:
    """Make every weight count, also those that start at 0, so that mistakes show."""
    torch.manual_seed(0)
    with torch.no_grad():
        for parameter in model.parameters():
            parameter.add_(0.2 * torch.randn_like(parameter))
    return model.eval()


def mvit_v1() -> nn.Module:
    """Build torchvision's MViT as mvit_v1_b does, on a grid of 5×12×8."""
    v2_only = ("residual_pool", "residual_with_cls_embed", "rel_pos_embed", "proj_after_attn")
    return _torchvision_mvit(**dict.fromkeys(v2_only, False))


def mvit_v2() -> nn.Module:
    """Build torchvision's MViT as mvit_v2_s does: relative positions and pooled residuals."""
    settings = dict.fromkeys(("residual_pool", "rel_pos_embed", "proj_after_attn"), True)
    return _torchvision_mvit(residual_with_cls_embed=False, **settings)


def _torchvision_mvit(**settings: bool) -> nn.Module:
    library = torchvision_video("mvit")
    blocks = [
        library.MSBlockConfig(1, 8, 8, [], [3, 3, 3], [], [1, 4, 4]),
        library.MSBlockConfig(2, 8, 16, [3, 3, 3], [3, 3, 3], [1, 2, 2], [1, 2, 2]),
        library.MSBlockConfig(2, 16, 16, [3, 3, 3], [3, 3, 3], [1, 1, 1], [1, 2, 2]),
    ]
    return scramble(library.MViT((48, 32), 10, blocks, num_classes=7, **settings))


def swin3d() -> nn.Module:
    """Build torchvision's Swin3D with windows of 2×2×3 patches in two stages."""
    library = torchvision_video("swin_transformer")
    model = library.SwinTransformer3d(
        patch_size=[2, 4, 4],
        embed_dim=8,
        depths=[2, 2],
        num_heads=[1, 2],
        window_size=[2, 2, 3],
        num_classes=7,
    )
    return scramble(model)


LAYERS = {"hidden_size": 16, "num_hidden_layers": 3, "num_attention_heads": 2, "num_labels": 7}


def videomae(*, is_classifier: bool = True, use_mean_pooling: bool = True) -> nn.Module:
    """Build VideoMAE on a grid of 5×6×4."""
    library = transformers()
    config = library.VideoMAEConfig(
        image_size=(48, 32),
        patch_size=8,
        num_frames=10,
        intermediate_size=24,
        use_mean_pooling=use_mean_pooling,
        **LAYERS,
    )
    name = "VideoMAEForVideoClassification" if is_classifier else "VideoMAEModel"
    return scramble(getattr(library, name)(config))


def vivit(*, is_classifier: bool = True) -> nn.Module:
    """Build ViViT on a grid of 5×6×4."""
    library = transformers()
    config = library.VivitConfig(
        image_size=(48, 32), tubelet_size=[2, 8, 8], num_frames=10, intermediate_size=24, **LAYERS
    )
    name = "VivitForVideoClassification" if is_classifier else "VivitModel"
    return scramble(getattr(library, name)(config))


def timesformer(
    *, is_classifier: bool = True, attention_type: str = "divided_space_time"
) -> nn.Module:
    """Build TimeSformer on a grid of 5×4×4."""
    library = transformers()
    config = library.TimesformerConfig(
        image_size=32,
        patch_size=8,
        num_frames=5,
        intermediate_size=24,
        attention_type=attention_type,
        **LAYERS,
    )
    name = "TimesformerForVideoClassification" if is_classifier else "TimesformerModel"
    return scramble(getattr(library, name)(config))


def vjepa2(*, is_classifier: bool = True) -> nn.Module:
    """Build V-JEPA 2 on a grid of 5×4×4."""
    library = transformers()
    config = library.VJEPA2Config(
        crop_size=32,
        patch_size=8,
        frames_per_clip=10,
        tubelet_size=2,
        mlp_ratio=2.0,
        num_pooler_layers=1,
        pred_hidden_size=16,
        pred_num_attention_heads=2,
        pred_num_hidden_layers=1,
        **LAYERS,
    )
    name = "VJEPA2ForVideoClassification" if is_classifier else "VJEPA2Model"
    return scramble(getattr(library, name)(config))


def pytorchvideo_mvit(*, has_class_token: bool = True) -> nn.Module:
    """Build pytorchvideo's MViT on a grid of 5×12×8."""
    model = pytorchvideo().create_multiscale_vision_transformers(
        spatial_size=(48, 32),
        temporal_size=10,
        cls_embed_on=has_class_token,
        depth=3,
        patch_embed_dim=8,
        head_num_classes=7,
        embed_dim_mul=[[1, 2.0]],
        atten_head_mul=[[1, 2.0]],
        pool_q_stride_size=[[1, 1, 2, 2]],
        pool_kv_stride_adaptive=[1, 4, 4],
        pool_kvq_kernel=[3, 3, 3],
    )
    return scramble(model)


def slowfast_mvit(*, is_v2: bool = False) -> nn.Module:
    """Build SlowFast's MViT on a grid of 5×12×12, as its MViT-B or with v2's relative positions."""
    torchvision_video("mvit")
    defaults = pytest.importorskip("slowfast.config.defaults", reason="SlowFast is not installed")
    builder = importlib.import_module("slowfast.models.video_model_builder")
    config = defaults.get_cfg()
    config.DATA.TRAIN_CROP_SIZE = config.DATA.TEST_CROP_SIZE = 48
    config.DATA.NUM_FRAMES, config.DATA.INPUT_CHANNEL_NUM = 10, [3]
    config.MODEL.NUM_CLASSES, config.MODEL.DROPOUT_RATE = 7, 0.0
    mvit = config.MVIT
    mvit.DEPTH, mvit.EMBED_DIM, mvit.NUM_HEADS = 3, 8, 1
    mvit.PATCH_KERNEL, mvit.PATCH_STRIDE, mvit.PATCH_PADDING = [3, 7, 7], [2, 4, 4], [1, 3, 3]
    mvit.DIM_MUL, mvit.HEAD_MUL = [[1, 2.0]], [[1, 2.0]]
    mvit.POOL_KVQ_KERNEL, mvit.POOL_Q_STRIDE = [3, 3, 3], [[1, 1, 2, 2]]
    mvit.POOL_KV_STRIDE_ADAPTIVE, mvit.DROPPATH_RATE = [1, 4, 4], 0.0
    mvit.SEP_POS_EMBED, mvit.USE_ABS_POS = True, not is_v2
    mvit.REL_POS_SPATIAL = mvit.REL_POS_TEMPORAL = mvit.RESIDUAL_POOLING = is_v2
    mvit.DIM_MUL_IN_ATT = is_v2
    return scramble(builder.MViT(config))


class PoolingBlock(nn.Module):
    """Attention over tokens and their grid, with pooled queries, as in SlowFast's blocks."""

    def __init__(self, channels: int, *, stride: int) -> None:
        super().__init__()
        self.norm1, self.qkv = nn.LayerNorm(channels), nn.Linear(channels, 3 * channels)
        self.attn = nn.Module()
        steps, sides = (1, stride, stride), (1, 3, 3)
        self.attn.pool_q = nn.Conv3d(channels, channels, sides, steps, (0, 1, 1))

    def forward(self, x: Tensor, thw_shape: list[int]) -> tuple[Tensor, list[int]]:
        q, k, v = self.qkv(self.norm1(x)).chunk(3, dim=2)
        patches = q[:, 1:].transpose(1, 2).unflatten(2, thw_shape)
        pooled = self.attn.pool_q(patches)
        q = torch.cat([q[:, :1], pooled.flatten(2).transpose(1, 2)], dim=1)
        return q + (q @ k.mT).softmax(dim=2) @ v, list(pooled.shape[2:])


class SlowFastClass(nn.Module):
    """Has the path of SlowFast's MViT, its attributes, and its input: a list of pathways."""

    __module__, __qualname__ = "slowfast.models.video_model_builder", "MViT"

    def __init__(self) -> None:
        super().__init__()
        self.enable_rev = self.enable_detection = False
        self.use_abs_pos = self.cls_embed_on = True
        self.patch_dims, channels = [5, 12, 12], 8
        self.patches = nn.Conv3d(3, channels, (2, 4, 4), (2, 4, 4))
        self.cls_token = self.place(1)
        self.pos_embed_class, self.pos_embed_spatial = self.place(1), self.place(12 * 12)
        self.pos_embed_temporal = self.place(5)
        self.blocks = nn.ModuleList(PoolingBlock(channels, stride=n) for n in (1, 2, 1))
        self.norm, self.head = nn.LayerNorm(channels), nn.Linear(channels, 7)

    @staticmethod
    def place(count: int) -> nn.Parameter:
        return nn.Parameter(torch.randn(1, count, 8))

    def patch_embed(self, video: Tensor) -> tuple[Tensor, None]:
        return self.patches(video).flatten(2).transpose(1, 2), None

    def forward(self, pathways: list[Tensor]) -> Tensor:
        tokens, _ = self.patch_embed(pathways[0])
        places = self.pos_embed_temporal[:, :, None] + self.pos_embed_spatial[:, None]
        tokens = torch.cat([self.cls_token.expand(tokens.shape[0], -1, -1), tokens], dim=1)
        tokens = tokens + torch.cat([self.pos_embed_class, places.flatten(1, 2)], dim=1)
        thw = list(self.patch_dims)
        for block in self.blocks:
            tokens, thw = block(tokens, thw)
        return self.head(self.norm(tokens)[:, 0])


class SlowFastStandIn(SlowFastClass):
    """Is found by the adapter of the class that it derives from, and can be pickled."""


def slowfast_stand_in() -> nn.Module:
    """Build a model that is called as SlowFast's MViT, whether that is installed or not."""
    return scramble(SlowFastStandIn())
