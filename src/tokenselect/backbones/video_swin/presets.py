"""The Video Swin models that have a name."""

from tokenselect.backbones.video_swin.model import VideoSwin
from tokenselect.backbones.video_swin.windows import THW


def video_swin_t(
    *,
    num_classes: int = 400,
    frames: int = 32,
    size: int | tuple[int, int] = 224,
    fit_windows: bool = True,
    drop_path: float = 0.1,
    dropout: float = 0.5,
) -> VideoSwin:
    """Video Swin-T: 28.2 M parameters, 87.8 GMACs a view."""
    return VideoSwin(
        num_classes=num_classes,
        frames=frames,
        size=_both(size),
        channels=96,
        depths=(2, 2, 6, 2),
        num_heads=(3, 6, 12, 24),
        window=(8, 7, 7),
        fit_windows=fit_windows,
        drop_path=drop_path,
        dropout=dropout,
    )


def video_swin_s(
    *,
    num_classes: int = 400,
    frames: int = 32,
    size: int | tuple[int, int] = 224,
    fit_windows: bool = True,
    drop_path: float = 0.1,
    dropout: float = 0.5,
) -> VideoSwin:
    """Video Swin-S: 49.8 M parameters, 165.7 GMACs a view."""
    return VideoSwin(
        num_classes=num_classes,
        frames=frames,
        size=_both(size),
        channels=96,
        depths=(2, 2, 18, 2),
        num_heads=(3, 6, 12, 24),
        window=(8, 7, 7),
        fit_windows=fit_windows,
        drop_path=drop_path,
        dropout=dropout,
    )


def video_swin_b(
    *,
    num_classes: int = 400,
    frames: int = 32,
    size: int | tuple[int, int] = 224,
    window: THW = (8, 7, 7),
    fit_windows: bool = True,
    drop_path: float = 0.2,
    dropout: float = 0.5,
) -> VideoSwin:
    """Video Swin-B as trained on Kinetics: 88.0 M parameters, 281.3 GMACs a view."""
    return VideoSwin(
        num_classes=num_classes,
        frames=frames,
        size=_both(size),
        channels=128,
        depths=(2, 2, 18, 2),
        num_heads=(4, 8, 16, 32),
        window=window,
        fit_windows=fit_windows,
        drop_path=drop_path,
        dropout=dropout,
    )


def video_swin_b_w16(
    *,
    num_classes: int = 174,
    frames: int = 32,
    size: int | tuple[int, int] = 224,
    fit_windows: bool = True,
    drop_path: float = 0.4,
    dropout: float = 0.5,
) -> VideoSwin:
    """Video Swin-B as trained on Something-Something V2: windows of 16 token frames."""
    return video_swin_b(
        num_classes=num_classes,
        frames=frames,
        size=size,
        window=(16, 7, 7),
        fit_windows=fit_windows,
        drop_path=drop_path,
        dropout=dropout,
    )


def video_swin_mini(
    *,
    num_classes: int = 400,
    frames: int = 16,
    size: int | tuple[int, int] = 64,
    fit_windows: bool = True,
    drop_path: float = 0.0,
    dropout: float = 0.0,
) -> VideoSwin:
    """Video Swin for tests and small data on a CPU; its windows span all 8 token frames."""
    return VideoSwin(
        num_classes=num_classes,
        frames=frames,
        size=_both(size),
        channels=32,
        depths=(2, 4, 2),
        num_heads=(1, 2, 4),
        window=(8, 4, 4),
        fit_windows=fit_windows,
        drop_path=drop_path,
        dropout=dropout,
    )


def _both(size: int | tuple[int, int]) -> tuple[int, int]:
    return (size, size) if isinstance(size, int) else size
