"""The MViT models that have a name."""

from tokenselect.backbones.mvit.model import MViT


def mvit_b16(
    *,
    num_classes: int = 400,
    frames: int = 16,
    size: int | tuple[int, int] = 224,
    drop_path: float = 0.2,
    dropout: float = 0.5,
) -> MViT:
    """MViT-B of 16 frames with a stride of 4: 36.6 M parameters, 70.6 GMACs a view."""
    return MViT(
        num_classes=num_classes,
        frames=frames,
        size=(size, size) if isinstance(size, int) else size,
        depth=16,
        channels=96,
        num_heads=1,
        q_strides=dict.fromkeys((1, 3, 14), (1, 2, 2)),
        kv_stride=(1, 8, 8),
        drop_path=drop_path,
        dropout=dropout,
    )


def mvit_b16_32x3(
    *,
    num_classes: int = 400,
    frames: int = 32,
    size: int | tuple[int, int] = 224,
    drop_path: float = 0.3,
    dropout: float = 0.5,
) -> MViT:
    """MViT-B of 32 frames with a stride of 3: the same blocks on twice the tokens."""
    return mvit_b16(
        num_classes=num_classes, frames=frames, size=size, drop_path=drop_path, dropout=dropout
    )


def mvit_mini(
    *,
    num_classes: int = 400,
    frames: int = 16,
    size: int | tuple[int, int] = 64,
    drop_path: float = 0.0,
    dropout: float = 0.0,
) -> MViT:
    """MViT for tests and small data on a CPU: 0.5 M parameters, 0.25 GMACs a view.

    Most of its blocks work on the 8 × 8 grid, where a region still has something to cut. Keys and
    values are pooled by 4 where MViT-B16 pools by 8: small pictures would lose what is small in
    them.
    """
    return MViT(
        num_classes=num_classes,
        frames=frames,
        size=(size, size) if isinstance(size, int) else size,
        depth=8,
        channels=24,
        num_heads=1,
        q_strides=dict.fromkeys((1, 6), (1, 2, 2)),
        kv_stride=(1, 4, 4),
        patch_kernel=(3, 5, 5),
        drop_path=drop_path,
        dropout=dropout,
    )
