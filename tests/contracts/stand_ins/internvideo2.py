"""InternVideo2, as its `single_modality/models/internvideo2.py` looks from outside."""

import torch
from torch import Tensor, nn

from tests.contracts.stand_ins import modeling_finetune


class DropoutAddRMSNorm(nn.Module):
    """Adds what came before, and normalizes the sum: gives both."""

    def __init__(self, width: int, prenorm: bool) -> None:
        super().__init__()
        self.weight = nn.Parameter(torch.ones(width))

    def forward(self, x: Tensor, residual: Tensor | None = None) -> tuple[Tensor, Tensor]:
        total = x if residual is None else x + residual
        return nn.functional.rms_norm(total, self.weight.shape, self.weight, 1e-5), total


class Block(modeling_finetune.Block):
    use_fused_rmsnorm = False

    def forward(self, x: Tensor, residual: Tensor | None = None):
        if not self.use_fused_rmsnorm:
            assert residual is None
            return super().forward(x)
        x, residual = self.norm1(x, residual)
        x, residual = self.norm2(self.attend(x), residual)
        return self.mlp(x), residual


class PatchEmbed(nn.Module):
    def __init__(self, size: int, side: int, width: int, frames: int) -> None:
        super().__init__()
        self.grid_size = (frames, size // side, size // side)
        self.proj = nn.Conv3d(3, width, (1, side, side), (1, side, side))

    def forward(self, x: Tensor) -> Tensor:
        return self.proj(x).flatten(3).permute(0, 2, 3, 1)  # (b, t, n, c)


class Pooling(nn.Module):
    def __init__(self, width: int, heads: int) -> None:
        super().__init__()
        self.attn = nn.MultiheadAttention(width, heads, batch_first=True)

    def forward(self, x: Tensor) -> Tensor:
        return self.attn(x.mean(1, keepdim=True), x, x, need_weights=False)[0].squeeze(1)


class InternVideo2(nn.Module):
    def __init__(
        self, img_size, patch_size, embed_dim, depth, num_heads, num_frames, num_classes, **_
    ):
        super().__init__()
        self.patch_embed = PatchEmbed(img_size, patch_size, embed_dim, num_frames)
        t, h, w = self.patch_embed.grid_size
        self.cls_token = nn.Parameter(torch.randn(1, 1, embed_dim))
        self.pos_embed = nn.Parameter(torch.randn(1, 1 + t * h * w, embed_dim))
        self.blocks = nn.ModuleList(Block(embed_dim, num_heads) for _ in range(depth))
        self.clip_projector = Pooling(embed_dim, num_heads)
        self.fc_norm, self.head = nn.LayerNorm(embed_dim), nn.Linear(embed_dim, num_classes)

    def forward(self, x: Tensor) -> Tensor:
        x = self.patch_embed(x).flatten(1, 2)
        x = torch.cat([self.cls_token.expand(x.shape[0], -1, -1), x], dim=1) + self.pos_embed
        residual = None
        for block in self.blocks:
            x = block(x, residual=residual)
            x, residual = x if isinstance(x, tuple) else (x, None)
        x = x if residual is None else x + residual
        return self.head(self.fc_norm(self.clip_projector(x)))
