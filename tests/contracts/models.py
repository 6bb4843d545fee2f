"""The models under the contracts, each small, with its own way of cutting frames by hand."""

from collections.abc import Callable
from dataclasses import dataclass

import torch
from torch import Tensor, nn

from tokenselect import TokenGrid, create_model


@dataclass(frozen=True)
class Case:
    """A model, its input, and a forward that keeps frames without any hook."""

    name: str
    build: Callable[[], nn.Module]
    video: Callable[[], Tensor]
    run_on_frames: Callable[[nn.Module, Tensor, tuple[int, ...]], Tensor]
    is_ours: bool = False


def run_own_on_frames(model: nn.Module, video: Tensor, frames: tuple[int, ...]) -> Tensor:
    grid = model.embed(video)
    grid = TokenGrid.from_patches(grid.patches[:, list(frames)], grid.prefix)
    for block in model.blocks:
        grid = block(grid)
    return model.head(grid)


def own_case(name: str, frames: int, size: tuple[int, int]) -> Case:
    return Case(
        name=f"{name}-{frames}x{size[0]}x{size[1]}",
        build=lambda: create_model(name, num_classes=7, frames=frames, size=size).eval(),
        video=lambda: torch.randn(2, 3, frames, *size),
        run_on_frames=run_own_on_frames,
        is_ours=True,
    )


CASES = [
    own_case("mvit_mini", 10, (96, 64)),
    own_case("video_swin_mini", 10, (96, 64)),
    own_case("video_swin_mini", 8, (80, 112)),
]
