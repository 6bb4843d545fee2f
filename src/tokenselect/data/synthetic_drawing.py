"""Drawing for the synthetic actions: shapes, still backgrounds, and what spoils a clip."""

import numpy as np
from numpy.typing import NDArray

Floats = NDArray[np.float32]

CLUTTER = 6  # still blocks in the background
NOISE = 0.1  # largest change of a pixel


def draw_mask(rng: np.random.Generator, radius: int) -> Floats:
    """Return the (2r + 1, 2r + 1) coverage of a disc, square, diamond, ring or cross."""
    y, x = np.abs(np.mgrid[-radius : radius + 1, -radius : radius + 1]).astype(np.float32)
    kind = rng.integers(5)
    if kind == 0:
        depth = radius - np.hypot(x, y)
    elif kind == 1:
        depth = 0.8 * radius - np.maximum(x, y)
    elif kind == 2:
        depth = radius - (x + y)
    elif kind == 3:
        depth = 0.35 * radius - np.abs(np.hypot(x, y) - 0.65 * radius)
    else:
        depth = np.maximum(radius / 3 - np.minimum(x, y), -1)
    return np.clip(depth + 0.5, 0, 1).astype(np.float32)


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
