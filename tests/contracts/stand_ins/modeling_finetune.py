"""VideoMAE V2, as its `models/modeling_finetune.py` looks from outside."""

import torch
from torch import Tensor, nn


class PatchEmbed(nn.Module):
    def __init__(self, img_size: tuple[int, int], side: int, width: int, frames: int) -> None:
        super().__init__()
        self.img_size, self.patch_size = img_size, (side, side)
        self.num_patches = img_size[0] // side * (img_size[1] // side) * (frames // 2)
        self.proj = nn.Conv3d(3, width, (2, side, side), (2, side, side))

    def forward(self, x: Tensor) -> Tensor:
        return self.proj(x).flatten(2).transpose(1, 2)


class Block(nn.Module):
    def __init__(self, width: int, heads: int) -> None:
        super().__init__()
        self.norm1, self.norm2 = nn.LayerNorm(width), nn.LayerNorm(width)
        self.attn = nn.MultiheadAttention(width, heads, batch_first=True)
        self.mlp = nn.Sequential(
            nn.Linear(width, 2 * width), nn.GELU(), nn.Linear(2 * width, width)
        )

    def attend(self, x: Tensor) -> Tensor:
        return self.attn(x, x, x, need_weights=False)[0]

    def forward(self, x: Tensor) -> Tensor:
        x = x + self.attend(self.norm1(x))
        return x + self.mlp(self.norm2(x))


class VisionTransformer(nn.Module):
    def __init__(
        self, img_size, patch_size, embed_dim, depth, num_heads, num_classes, all_frames, **_
    ):
        super().__init__()
        self.patch_embed = PatchEmbed(img_size, patch_size, embed_dim, all_frames)
        places = torch.arange(self.patch_embed.num_patches * embed_dim).sin()
        self.pos_embed = places.reshape(1, -1, embed_dim)  # no parameter, as the authors have it
        self.blocks = nn.ModuleList(Block(embed_dim, num_heads) for _ in range(depth))
        self.fc_norm = nn.LayerNorm(embed_dim)
        self.head = nn.Linear(embed_dim, num_classes)

    def forward(self, x: Tensor) -> Tensor:
        x = self.patch_embed(x)
        x = x + self.pos_embed.to(x.device)  # as the authors do
        for block in self.blocks:
            x = block(x)
        return self.head(self.fc_norm(x.mean(1)))
