"""Damage to bytes and values, drawn from a seed."""

import random
from collections.abc import Callable
from pathlib import Path

import torch
from PIL import Image

from tokenselect.data import seeded_generator, write_video

EDGES = (0, 1, 0x7F, 0x80, 0xFF, 0x7FFF, 0xFFFF, 0x7FFFFFFF, 0xFFFFFFFF)  # where counters turn over
HEADER = 512  # bytes, in which most files say what they hold

# Values that a setting may be given by mistake or on purpose.
HOSTILE: tuple[object, ...] = (
    0, -1, 1.5, True, None, "", "x", "0x10", "1e999", "../..", "\u2028", "\ud800", [], [1, 2, 3],
    {}, {"a": {"b": []}}, float("nan"), float("inf"), float("-inf"),
)  # fmt: skip

# Containers and codecs: what people have on their disks.
SEEDS = {
    "h264.mp4": ("libx264", {"g": "6", "bf": "2"}),
    "h264.mkv": ("libx264", {"g": "4"}),
    "h264.ts": ("libx264", {"g": "6"}),
    "hevc.mp4": ("libx265", {"x265-params": "log-level=none:keyint=6"}),
    "mpeg4.avi": ("mpeg4", {"g": "6", "bf": "2"}),
    "mpeg4.mov": ("mpeg4", {"g": "5"}),
    "mjpeg.avi": ("mjpeg", {}),
    "vp8.webm": ("libvpx", {"deadline": "realtime"}),
    "vp9.webm": ("libvpx-vp9", {"deadline": "realtime", "cpu-used": "8"}),
    "mpeg1.mpg": ("mpeg1video", {"g": "6"}),
    "flv1.flv": ("flv", {"g": "6"}),
    "ffv1.mkv": ("ffv1", {}),
}
PICTURES = ("jpg", "png", "bmp", "webp")  # folders of frames


def make_frames(
    count: int = 12, height: int = 48, width: int = 64, *, seed: int = 0
) -> torch.Tensor:
    """Draw (t, 3, h, w) uint8 frames: a bright square that wanders over noise."""
    generator = seeded_generator(seed)
    frames = torch.randint(0, 90, (count, 3, height, width), generator=generator).byte()
    for number in range(count):
        top, left = (number * 3) % (height - 12), (number * 4) % (width - 12)
        frames[number, :, top : top + 12, left : left + 12] = 220
    return frames


def write_seeds(folder: Path) -> list[Path]:
    """Write a short whole video of every kind; folders of pictures, too."""
    folder.mkdir(parents=True, exist_ok=True)
    frames = make_frames()
    paths = []
    for name, (codec, options) in SEEDS.items():
        pixels = "yuvj420p" if codec == "mjpeg" else "yuv420p"
        write_video(
            folder / name, frames, fps=25, codec=codec, pixel_format=pixels, options=options
        )
        paths.append(folder / name)
    for suffix in PICTURES:
        (folder / suffix).mkdir(exist_ok=True)
        for number, frame in enumerate(frames[:5]):
            picture = Image.fromarray(frame.permute(1, 2, 0).contiguous().numpy())
            picture.save(folder / suffix / f"{number}.{suffix}")
        paths.append(folder / suffix)
    return paths


def flip_bits(data: bytearray, other: bytes, draw: random.Random) -> None:
    """Flip up to 64 bits anywhere."""
    for _ in range(2 ** draw.randrange(7)):
        data[draw.randrange(len(data))] ^= 1 << draw.randrange(8)


def damage_header(data: bytearray, other: bytes, draw: random.Random) -> None:
    """Replace a few bytes of the first ones."""
    for _ in range(draw.randint(1, 8)):
        data[draw.randrange(min(HEADER, len(data)))] = draw.randrange(256)


def set_edges(data: bytearray, other: bytes, draw: random.Random) -> None:
    """Put a number where counters turn over at a place or two, in either order of bytes."""
    for _ in range(draw.randint(1, 3)):
        size, order = draw.choice((1, 2, 4)), draw.choice(("big", "little"))
        value = draw.choice([edge for edge in EDGES if edge < 1 << (8 * size)])
        place = draw.randrange(max(1, len(data) - size))
        data[place : place + size] = value.to_bytes(size, order)


def cut_off(data: bytearray, other: bytes, draw: random.Random) -> None:
    """Keep the beginning."""
    del data[draw.randrange(len(data)) :]


def cut_out(data: bytearray, other: bytes, draw: random.Random) -> None:
    """Take a piece away."""
    first = draw.randrange(len(data))
    del data[first : first + draw.randint(1, max(1, len(data) // 3))]


def blank_out(data: bytearray, other: bytes, draw: random.Random) -> None:
    """Overwrite a piece with zeros or with noise."""
    first = draw.randrange(len(data))
    length = min(len(data) - first, draw.randint(1, max(1, len(data) // 3)))
    data[first : first + length] = bytes(length) if draw.random() < 0.5 else draw.randbytes(length)


def repeat_piece(data: bytearray, other: bytes, draw: random.Random) -> None:
    """Put a piece in twice, or somewhere else."""
    first = draw.randrange(len(data))
    piece = data[first : first + draw.randint(1, max(1, len(data) // 3))]
    place = draw.randrange(len(data))
    data[place : place + (len(piece) if draw.random() < 0.5 else 0)] = piece


def splice(data: bytearray, other: bytes, draw: random.Random) -> None:
    """Continue with another file's bytes."""
    place = draw.randrange(len(data))
    data[place:] = other[min(place, len(other) - 1) :]


MUTATIONS: dict[str, Callable[[bytearray, bytes, random.Random], None]] = {
    "bits": flip_bits,
    "header": damage_header,
    "edges": set_edges,
    "cut off": cut_off,
    "cut out": cut_out,
    "blank": blank_out,
    "repeat": repeat_piece,
    "splice": splice,
}


def mutate(data: bytes, other: bytes, draw: random.Random) -> tuple[str, bytes]:
    """Damage bytes in one way or two; return how, and what came of it."""
    damaged, names = bytearray(data), []
    for _ in range(1 if draw.random() < 0.75 else 2):
        name = draw.choice(list(MUTATIONS))
        if damaged:
            MUTATIONS[name](damaged, other, draw)
            names.append(name)
    return " + ".join(names), bytes(damaged)
