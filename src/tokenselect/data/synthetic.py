"""Synthetic actions: clips of moving shapes whose class is a short motion in one region.

Several grey shapes wander over a cluttered grey background. One of them, the target, lights up for
a few frames and meanwhile walks round one corner; the eight classes are the eight corners
("right-up" is not "up-right": order matters). It lights up red where the first stroke is sideways
and green where it is upright, so that a frame of the burst says one bit of the answer and only its
motion the two others, one on each stroke. Everything else says nothing about the class: the other
shapes turn such corners all the time, one of them lights up blue, the brightness drifts and the
pixels are noisy. So the truth of which frames and which region matter is known exactly.

A single frame shows no motion at all, and a random half of the frames misses one of the two
strokes more often than not; what a model needs is the burst, and only the burst. The colours are
there to be learnt first: without them a small transformer stays at chance for thousands of clips.
"""

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Literal

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor
from torch.utils.data import Dataset

from tokenselect.threads import shared_zeros

Floats = NDArray[np.float32]

CLUTTER = 6  # still blocks in the background
NOISE = 0.1  # largest change of a pixel


def draw_mask(rng: np.random.Generator, radius: int) -> Floats:
    """Return the (2r + 1, 2r + 1) coverage of a disc, square, diamond, ring or cross."""
    y, x = np.abs(np.mgrid[-radius : radius + 1, -radius : radius + 1]).astype(np.float32)
    depths = (
        lambda: radius - np.hypot(x, y),
        lambda: 0.8 * radius - np.maximum(x, y),
        lambda: radius - (x + y),
        lambda: 0.35 * radius - np.abs(np.hypot(x, y) - 0.65 * radius),
        lambda: np.maximum(radius / 3 - np.minimum(x, y), -1),
    )
    return np.clip(depths[rng.integers(5)]() + 0.5, 0, 1).astype(np.float32)


def stamp(pixels: Floats, mask: Floats, centres: NDArray[np.int64], colours: Floats) -> None:
    """Draw one mover into all frames of (3, t, h, w) pixels, in place."""
    radius = mask.shape[0] // 2
    reach = np.arange(-radius, radius + 1)
    frames = np.arange(len(centres))[:, None, None]
    rows = (centres[:, 1, None] + reach)[:, :, None]  # (t, s, 1)
    columns = (centres[:, 0, None] + reach)[:, None, :]  # (t, 1, s)
    under = pixels[:, frames, rows, columns]  # (3, t, s, s)
    pixels[:, frames, rows, columns] = under + mask * (colours.T[:, :, None, None] - under)


def draw_background(rng: np.random.Generator, size: tuple[int, int]) -> Floats:
    """Return a (3, h, w) still grey picture: a slanted gradient with blocks strewn over it."""
    h, w = size
    y, x = np.mgrid[0 : 1 : h * 1j, 0 : 1 : w * 1j].astype(np.float32)
    base, slope_x, slope_y = rng.uniform([0.25, -0.1, -0.1], [0.5, 0.1, 0.1])
    picture = base + slope_x * x + slope_y * y
    for _ in range(CLUTTER):
        top, left = rng.integers(h), rng.integers(w)
        rows, columns = rng.integers(2, h // 4), rng.integers(2, w // 4)
        picture[top : top + rows, left : left + columns] = base + rng.uniform(-0.2, 0.2)
    return np.repeat(picture[None].astype(np.float32), 3, axis=0)


def spoil(pixels: Floats, rng: np.random.Generator) -> Floats:
    """Let the brightness of (3, t, h, w) pixels drift and flicker, add noise, clip to [0, 1]."""
    frames = pixels.shape[1]
    drift = np.cumsum(rng.normal(0, 0.03, frames))
    gain = 1 + drift - drift.mean() + rng.normal(0, 0.03, frames)
    pixels *= gain.astype(np.float32)[:, None, None]
    noise = np.frombuffer(rng.bytes(pixels[0].size), dtype=np.int8).reshape(pixels.shape[1:])
    pixels += noise * np.float32(NOISE / 128)
    return np.clip(pixels, 0, 1, out=pixels)


def looks_synthetic(frames: Tensor) -> bool:
    """Tell from (t, 3, h, w) uint8 frames whether they may be of a synthetic action.

    All is grey but for a few shapes that light up in some frames; of a grey film nothing does.
    """
    saturation = (frames.amax(dim=1) - frames.amin(dim=1)).flatten(1)  # (t, h·w)
    is_lit = (saturation > 115).any(dim=1)
    return bool(saturation.median() <= 3 and is_lit.any() and not is_lit.all())


Split = Literal["train", "val", "test"]

DIRECTIONS = {"right": (1, 0), "left": (-1, 0), "down": (0, 1), "up": (0, -1)}  # (x, y)
CLASS_NAMES = [
    f"{first}-{second}"
    for first, step in DIRECTIONS.items()
    for second, turn in DIRECTIONS.items()
    if step[0] * turn[0] + step[1] * turn[1] == 0
]
TARGET, DECOY = 0, 1  # rows among the movers
RED, GREEN, BLUE = (0.95, 0.1, 0.1), (0.1, 0.95, 0.1), (0.1, 0.25, 0.95)
RED_CLASSES = ("right-down", "right-up", "left-down", "left-up")  # the target's mark is red
SPLITS: tuple[Split, ...] = ("train", "val", "test")
MEAN, STD = 0.45, 0.225  # what the Kinetics models were trained with


@dataclass(frozen=True)
class Truth:
    """What decides the class of a clip."""

    frames: Tensor  # (t,) bool, true in the burst
    boxes: Tensor  # (t, 4) pixels x0, y0, x1, y1 of the target in the burst, else zeros


@dataclass(frozen=True)
class Scene:
    """All that is drawn in one clip, before it is drawn."""

    label: int  # the class
    burst: slice  # the frames in which the target is lit and its motion tells the class
    # (m, t, 2) whole pixels x, y of the movers, the target first, then the decoy
    centres: NDArray[np.int64]
    colours: Floats  # (m, t, 3) of the movers in [0, 1]
    stamps: list[Floats]  # m masks (2·radius + 1, 2·radius + 1) in [0, 1]


class SyntheticActions(Dataset[tuple[Tensor, int]]):
    """Endless source of synthetic clips, of which the first `num_clips` make the data set.

    Clip i depends on (seed, split, i, frames, size) alone, and in training on the epoch, so a
    longer set begins with the shorter one, and the splits never share a clip.

    Args:
        size: h and w in pixels, or one side for both.
        movers: moving shapes, the target and the decoy among them.
        is_training: make new clips in each epoch, so that none is seen twice.
    """

    class_names: Sequence[str] = CLASS_NAMES

    def __init__(
        self,
        num_clips: int = 2000,
        *,
        frames: int = 16,
        size: int | tuple[int, int] = 64,
        seed: int = 0,
        split: Split = "train",
        movers: int = 3,
        is_training: bool = False,
    ) -> None:
        self.size = (size, size) if isinstance(size, int) else size
        if num_clips < 1 or frames < 4 or min(self.size) < 32 or movers < 2:
            raise ValueError(
                "needs num_clips ≥ 1, frames ≥ 4, sides ≥ 32 and movers ≥ 2, got "
                f"num_clips={num_clips}, frames={frames}, size={self.size}, movers={movers}"
            )
        if split not in SPLITS:
            raise ValueError(f"split must be one of {SPLITS}, got {split!r}")
        self.num_clips, self.frames, self.movers = num_clips, frames, movers
        self.key = (seed, SPLITS.index(split))
        self.is_training = is_training
        self._epoch = shared_zeros(dtype=torch.int64)  # with the workers

    def set_epoch(self, epoch: int) -> None:
        """Make the clips those of `epoch`, in training; call it before iterating."""
        self._epoch.fill_(epoch)

    def __len__(self) -> int:
        return self.num_clips

    def __getitem__(self, index: int) -> tuple[Tensor, int]:
        """Return the (3, t, h, w) clip, normalised, and its label."""
        scene, pixels = self._draw(index)
        pixels -= MEAN
        pixels *= 1 / STD
        return torch.from_numpy(pixels), scene.label

    def video(self, index: int) -> Tensor:
        """Return the clip as a video would hold it: (t, 3, h, w) uint8."""
        _, pixels = self._draw(index)
        return torch.from_numpy(pixels).mul(255).round().to(torch.uint8).transpose(0, 1)

    def truth(self, index: int) -> Truth:
        """Return which frames and which box in each decide the class of clip `index`."""
        scene, _ = self._scene(index)
        frames = torch.zeros(self.frames, dtype=torch.bool)
        frames[scene.burst] = True
        centres, radius = torch.from_numpy(scene.centres[TARGET]), len(scene.stamps[TARGET]) // 2
        boxes = torch.cat([centres - radius, centres + radius + 1], dim=1).float()  # (t, 4)
        limits = torch.tensor([self.size[1], self.size[0]] * 2, dtype=torch.float32)
        return Truth(frames, boxes.clamp(min=0).minimum(limits) * frames[:, None])

    def _scene(self, index: int) -> tuple[Scene, np.random.Generator]:
        if not 0 <= index < self.num_clips:
            raise IndexError(f"index must be in [0, {self.num_clips}), got {index}")
        epoch = int(self._epoch) if self.is_training else 0
        rng = np.random.default_rng((*self.key, index, epoch))
        label = index % len(CLASS_NAMES)
        return plan_scene(rng, label, self.frames, self.size, self.movers), rng

    def _draw(self, index: int) -> tuple[Scene, Floats]:
        scene, rng = self._scene(index)
        pixels = np.repeat(draw_background(rng, self.size)[:, None], self.frames, axis=1)
        for mover in reversed(range(self.movers)):  # the target last: nothing may hide it
            stamp(pixels, scene.stamps[mover], scene.centres[mover], scene.colours[mover])
        return scene, spoil(pixels, rng)


def plan_scene(
    rng: np.random.Generator, label: int, frames: int, size: tuple[int, int], movers: int
) -> Scene:
    """Draw the shapes, colours and paths of a clip; only the target's burst follows the label."""
    side = min(size)
    length = max(4, round(frames * 6 / 16))  # of a burst
    stroke = side / 5
    radii = rng.integers(round(side / 9), round(side / 6) + 1, size=movers)
    starts = rng.integers(frames - length + 1, size=2)
    steps = wander(rng, movers, frames) * (2 * stroke / (length - 1))  # (m, t, 2)
    first = int(starts[TARGET])
    path = turn_corner(label, length) * stroke  # (length, 2)
    steps[TARGET, first + 1 : first + length] = np.diff(path, axis=0)
    centres = np.cumsum(steps, axis=1)
    low, high = radii[:, None], np.array([size[1], size[0]]) - 1 - radii[:, None]  # (m, 1), (m, 2)
    wanted = rng.uniform(low, high)  # of each mover at its first frame, of the target at its burst
    wanted[TARGET] = rng.uniform(low[TARGET] - path.min(axis=0), high[TARGET] - path.max(axis=0))
    anchors = np.zeros(movers, dtype=np.int64)
    anchors[TARGET] = first
    centres += (wanted - centres[np.arange(movers), anchors])[:, None]
    low, high = low[:, None], high[:, None]  # beyond them a mover bounces, as a ball off a wall
    centres = high - np.abs((centres - low) % (2 * (high - low)) - (high - low))
    return Scene(
        label=label,
        burst=slice(first, first + length),
        centres=np.rint(centres).astype(np.int64),
        colours=colour_movers(rng, label, movers, frames, starts, length),
        stamps=[draw_mask(rng, int(radius)) for radius in radii],
    )


def turn_corner(label: int, length: int) -> NDArray[np.float64]:
    """Return the (length, 2) path of a class, one unit each way, from (0, 0)."""
    first, second = (np.array(DIRECTIONS[name]) for name in CLASS_NAMES[label].split("-"))
    way = np.linspace(0, 2, length)[:, None]
    return first * np.minimum(way, 1) + second * np.maximum(way - 1, 0)


def wander(rng: np.random.Generator, movers: int, frames: int) -> NDArray[np.float64]:
    """Return (m, t, 2) unit steps along the axes that turn at random every second frame or so."""
    turns = rng.random((movers, frames)) < 0.5
    turns[:, 0] = True
    since = np.maximum.accumulate(np.where(turns, np.arange(frames), 0), axis=1)  # (m, t)
    ways = np.take_along_axis(rng.integers(4, size=(movers, frames)), since, axis=1)
    return np.array(list(DIRECTIONS.values()), dtype=np.float64)[ways]


def colour_movers(
    rng: np.random.Generator,
    label: int,
    movers: int,
    frames: int,
    starts: NDArray[np.int64],
    length: int,
) -> Floats:
    """Return (m, t, 3) colours: grey, but for the lit target and the lit decoy."""
    greys = rng.uniform(0.2, 0.8, size=(movers, 1, 1))
    colours = np.broadcast_to(greys, (movers, frames, 3)).astype(np.float32)
    mark = RED if CLASS_NAMES[label] in RED_CLASSES else GREEN
    for mover, colour in ((TARGET, mark), (DECOY, BLUE)):
        lit = np.array(colour) + rng.uniform(-0.05, 0.05, size=3)
        colours[mover, starts[mover] : starts[mover] + length] = lit
    return colours
