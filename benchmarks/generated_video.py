"""Generated video to pretrain on: bodies whose joints follow formulas, in front of moving textures.

A class is a motion and nothing else: a few sine series that drive the joints of a figure, the
fingers of a hand, the lips of a mouth or three loose points. Each of them also runs backwards and
mirrored, as classes of their own, so that direction and side count. Everything else is drawn anew
for each clip: build, colours, place, size, pace, moment, background, camera, light, noise, what
passes behind and what stands before. No picture of anybody goes in, so nobody's licence comes out.
"""

import math
from dataclasses import dataclass

import torch
from torch import Tensor

PROGRAMS = 48  # motions; each has four classes
NUM_CLASSES = 4 * PROGRAMS
KINDS = ("figure", "hand", "mouth", "points")
SIGNALS, HARMONICS = 6, 3
PARTS = 8  # capsules of a body; a kind that needs fewer hides the rest
WAVES = 5  # of a background


@dataclass(frozen=True)
class Body:
    """Capsules in units of the picture's half side, x to the right and y down."""

    ends: Tensor  # (b, t, PARTS, 2, 2) both ends of each capsule
    radii: Tensor  # (b, t, PARTS); a negative one hides it
    colours: Tensor  # (b, PARTS, 3)


class GeneratedVideo:
    """Draws batches of clips and their classes.

    Args:
        frames: t, frames of a clip.
        size: height and width in pixels.
        seed: of the clips; the motions of the classes are always the same.
        clutter: of the busiest clips, 0 to 1; others have less. Without any, a body moves in front
            of one colour.
    """

    def __init__(
        self, *, frames: int = 16, size: int = 64, seed: int = 0, clutter: float = 1.0
    ) -> None:
        self.frames, self.size, self.clutter = frames, size, clutter
        self.random = torch.Generator().manual_seed(seed)
        fixed = torch.Generator().manual_seed(0)
        damping = 1 / torch.arange(1, HARMONICS + 1)
        waves = torch.randn(PROGRAMS, SIGNALS, HARMONICS, generator=fixed) * damping
        is_silent = torch.rand(PROGRAMS, SIGNALS, 1, generator=fixed) < 0.3
        self.waves = waves.masked_fill(is_silent, 0)
        self.shifts = 0.6 * torch.randn(PROGRAMS, SIGNALS, generator=fixed)

    def uniform(self, low: float, high: float, *shape: int) -> Tensor:
        """Draw numbers between two bounds."""
        return low + (high - low) * torch.rand(*shape, generator=self.random)

    def draw_tints(self, low: float, high: float, *shape: int) -> Tensor:
        """Draw colours (…, 3): a brightness between two bounds, and a little of a hue."""
        return self.uniform(low, high, *shape, 1) + 0.25 * self.uniform(low, high, *shape, 3)

    def draw(self, clips: int) -> tuple[Tensor, Tensor, Body]:
        """Draw (b, 3, t, h, w) clips in about [0, 1], their (b,) classes, and who moves in them."""
        labels = torch.randint(NUM_CLASSES, (clips,), generator=self.random)
        clutter = self.uniform(0, self.clutter, clips)
        pixels, body = self.draw_background(clutter), self.draw_body(labels)
        self.paint(pixels, self.draw_bars(clutter, count=2, speed=0.8))
        self.paint(pixels, body)
        self.paint(pixels, self.draw_bars(clutter, count=1, speed=0.2))
        return self.spoil(pixels, clutter), labels, body

    def draw_signals(self, labels: Tensor) -> Tensor:
        """Draw the (b, t, SIGNALS) course of each motion, at a pace and a moment of its own."""
        b = len(labels)
        start, length = self.uniform(0, 0.25, b, 1), self.uniform(0.55, 0.8, b, 1)
        time = ((torch.linspace(0, 1, self.frames) - start) / length).clamp(0, 1)  # (b, t)
        time = torch.where((labels % 2 == 1)[:, None], 1 - time, time)
        angles = math.pi * time[..., None] * torch.arange(1, HARMONICS + 1)  # (b, t, harmonics)
        program = labels // 4
        waves = self.waves[program] * self.uniform(0.8, 1.25, b, SIGNALS, HARMONICS)
        course = torch.einsum("bth,bsh->bts", angles.sin(), waves)
        return course + time[..., None] * self.shifts[program][:, None]

    def draw_body(self, labels: Tensor) -> Body:
        """Draw who moves: a figure, a hand, a mouth or points, each somewhere and of some size."""
        b = len(labels)
        signals = self.draw_signals(labels)
        ends = torch.zeros(b, self.frames, PARTS, 2, 2)
        radii = torch.full((b, self.frames, PARTS), -1.0)
        for number, draw in enumerate(
            (self.draw_figure, self.draw_hand, self.draw_mouth, self.draw_points)
        ):
            chosen = (labels // 4) % len(KINDS) == number
            ends[chosen], radii[chosen] = draw(signals[chosen])
        is_mirrored = (labels % 4 >= 2)[:, None, None, None]
        ends[..., 0] = torch.where(is_mirrored, -ends[..., 0], ends[..., 0])
        scale = self.uniform(0.7, 1.15, b, 1, 1)
        ends = ends * scale[..., None, None] + self.uniform(-0.25, 0.25, b, 1, 1, 1, 2)
        colours = self.uniform(0.1, 0.8, b, 1, 3) + self.draw_tints(-0.15, 0.15, b, PARTS)
        return Body(ends, radii * scale, colours)

    def draw_figure(self, signals: Tensor) -> tuple[Tensor, Tensor]:
        """Draw a head, a trunk and two arms whose shoulders and elbows turn."""
        b = len(signals)
        upper, lower = self.uniform(0.3, 0.45, b, 1), self.uniform(0.3, 0.45, b, 1)
        lean = 0.1 * signals[..., 4]
        neck = torch.stack([lean, torch.full_like(lean, -0.25)], dim=-1)  # (b, t, 2)
        hip = torch.stack([torch.zeros_like(lean), torch.full_like(lean, 0.8)], dim=-1)
        head = neck + torch.stack([0.1 * signals[..., 5], torch.full_like(lean, -0.3)], dim=-1)
        capsules = [(neck, hip), (head, head)]
        for side, first in ((-1, 0), (1, 2)):
            shoulder = neck + torch.tensor([0.25 * side, 0.05])
            angle = 0.5 + 1.2 * signals[..., first]
            elbow = shoulder + turn(angle, side) * upper[..., None]
            hand = (
                elbow + turn(angle + 0.6 + 1.2 * signals[..., first + 1], side) * lower[..., None]
            )
            capsules += [(shoulder, elbow), (elbow, hand), (hand, hand)]
        widths = self.uniform(0.8, 1.2, b, 1, 1) * torch.tensor(
            [0.24, 0.18, 0.09, 0.07, 0.11, 0.09, 0.07, 0.11]
        )
        return join(capsules), widths.expand(-1, self.frames, -1)

    def draw_hand(self, signals: Tensor) -> tuple[Tensor, Tensor]:
        """Draw a palm that travels and turns, with five fingers that bend."""
        b = len(signals)
        palm = 0.45 * signals[..., :2]
        spread = self.uniform(0.25, 0.4, b, 1)
        wrist = palm + turn(0.5 * signals[..., 2], 1) * 0.5
        capsules = [(palm, palm), (palm, wrist)]
        for finger in range(5):
            angle = math.pi + 0.5 * signals[..., 2] + (finger - 2) * spread
            bend = torch.sigmoid(2.5 * signals[..., 3 + finger % 3] + 1)
            tip = palm + turn(angle, 1) * (0.25 + 0.4 * bend)[..., None]
            capsules.append((palm, tip))
        widths = torch.tensor([0.25, 0.16, 0.07, 0.07, 0.07, 0.07, 0.08, -1.0])
        return join([*capsules, (palm, palm)]), widths.expand(b, self.frames, -1)

    def draw_mouth(self, signals: Tensor) -> tuple[Tensor, Tensor]:
        """Draw a chin, and lips that open, purse and stretch around dark, teeth and tongue."""
        b = len(signals)
        wide = self.uniform(0.3, 0.5, b, 1) * (1 + 0.5 * signals[..., 0].tanh())
        opening = 0.22 * torch.sigmoid(2 * signals[..., 1] - 1)
        middle = torch.stack([0.1 * signals[..., 2], 0.1 * signals[..., 3]], dim=-1)
        chin = middle + torch.tensor([0.0, 0.45])
        chin[..., 1] += opening
        half = torch.stack([wide, torch.zeros_like(wide)], dim=-1)
        tongue = middle + torch.stack([torch.zeros_like(wide), opening], dim=-1) * 0.5
        teeth = middle - torch.stack([torch.zeros_like(wide), opening], dim=-1) * 0.6
        capsules = [(chin - half, chin + half), (middle - half, middle + half)]
        capsules += [(middle - half, middle + half), (teeth - half / 2, teeth + half / 2)]
        capsules += [(tongue, tongue)] * (PARTS - len(capsules))
        lips = self.uniform(0.06, 0.12, b, 1) + opening
        hidden = torch.full_like(lips, -1.0)
        show = torch.sigmoid(3 * signals[..., 4]) * opening * 0.5
        radii = [hidden + 1.35, lips, opening, opening * 0.3, show, hidden, hidden, hidden]
        return join(capsules), torch.stack(radii, dim=-1)

    def draw_points(self, signals: Tensor) -> tuple[Tensor, Tensor]:
        """Draw three loose discs on paths of their own."""
        b = len(signals)
        places = 0.5 * signals.unflatten(-1, (3, 2)) + self.uniform(-0.4, 0.4, b, 1, 3, 2)
        capsules = [(places[:, :, n % 3], places[:, :, n % 3]) for n in range(PARTS)]
        widths = self.uniform(0.1, 0.22, b, 1, PARTS)
        widths[..., 3:] = -1
        return join(capsules), widths.expand(-1, self.frames, -1)

    def draw_bars(self, clutter: Tensor, *, count: int, speed: float) -> Body:
        """Draw bars that cross the picture; the more clutter, the more clips have some."""
        clips = len(clutter)
        time = torch.linspace(-0.5, 0.5, self.frames)[:, None, None]  # (t, 1, 1)
        path = self.uniform(-1, 1, clips, 1, count, 2)
        path = path + time * self.uniform(-speed, speed, clips, 1, count, 2)  # (b, t, n, 2)
        reach = self.uniform(-0.5, 0.5, clips, 1, count, 2)
        radii = self.uniform(0.03, 0.12, clips, 1, count)
        radii[torch.rand(clips, generator=self.random) > clutter] = -1
        ends = torch.stack([path - reach, path + reach], dim=3)
        return Body(ends, radii.expand(-1, self.frames, -1), self.draw_tints(0, 0.8, clips, count))

    def draw_background(self, clutter: Tensor) -> Tensor:
        """Draw (b, 3, t, h, w) waves of colours, seen by a camera that pans, turns and zooms."""
        clips = len(clutter)
        time = torch.linspace(-0.5, 0.5, self.frames)[:, None, None]  # (t, 1, 1)
        side = torch.linspace(-1, 1, self.size)
        is_moving = (torch.rand(clips, 1, 1, 1, generator=self.random) < 0.6).float()
        angle = self.uniform(-0.4, 0.4, clips, 1, 1, 1) * is_moving * time
        zoom = 1 + self.uniform(-0.3, 0.3, clips, 1, 1, 1) * is_moving * time
        pan = self.uniform(-0.6, 0.6, 2, clips, 1, 1, 1) * is_moving * time
        x = zoom * (angle.cos() * side - angle.sin() * side[:, None]) + pan[0]
        y = zoom * (angle.sin() * side + angle.cos() * side[:, None]) + pan[1]  # (b, t, h, w)
        pixels = self.draw_tints(0.1, 0.7, clips)[..., None, None, None].repeat(1, 1, *x.shape[1:])
        for _ in range(WAVES):
            way = 6 * torch.randn(2, clips, 1, 1, 1, generator=self.random)
            wave = torch.sin(way[0] * x + way[1] * y + self.uniform(0, 6.3, clips, 1, 1, 1))
            tints = self.draw_tints(-0.12, 0.12, clips) * clutter[:, None]
            pixels.addcmul_(wave[:, None], tints[..., None, None, None])
        return pixels

    def paint(self, pixels: Tensor, body: Body) -> None:
        """Paint capsules one over the other into (b, 3, t, h, w) pixels, lit from the middle."""
        side = torch.linspace(-1, 1, self.size)
        for part in range(body.radii.shape[2]):
            if not (body.radii[:, :, part] > 0).any():
                continue
            depth = measure_depth(body, part, side)
            cover = (depth * (self.size / 2) + 0.5).clamp_(0, 1)
            light = 0.75 + 0.5 * depth.clamp_(0, 0.5)
            for colour in range(3):
                paint = light * body.colours[:, part, colour, None, None, None]
                pixels[:, colour].lerp_(paint, cover)

    def spoil(self, pixels: Tensor, clutter: Tensor) -> Tensor:
        """Let the light drift, add noise, and take the average frame out of some clips."""
        b, clutter = len(pixels), clutter[:, None, None, None, None]
        drift = torch.randn(b, 1, self.frames, 1, 1, generator=self.random).cumsum(dim=2)
        drift = 0.02 * clutter * drift
        pixels = pixels * (1 + drift) * self.uniform(0.7, 1.3, b, 1, 1, 1, 1)
        grain = torch.randn(b, 1, *pixels.shape[2:], generator=self.random)
        pixels = (pixels + 0.06 * clutter * grain).clamp_(0, 1)
        is_centred = torch.rand(b, 1, 1, 1, 1, generator=self.random) < 0.3
        average = pixels.mean(dim=2, keepdim=True) - 0.45
        return torch.where(is_centred, pixels - average, pixels)


def measure_depth(body: Body, part: int, side: Tensor) -> Tensor:
    """Measure how deep each place lies in a capsule, (b, t, h, w); outside it is below zero.

    The places are those of a square with the coordinates `side` along both edges.
    """
    start = body.ends[:, :, part, 0, :, None, None]  # (b, t, 2, 1, 1)
    along = body.ends[:, :, part, 1, :, None, None] - start
    x, y = side - start[:, :, 0], side[:, None] - start[:, :, 1]  # (b, t, 1, w), (b, t, h, 1)
    length = along.square().sum(dim=2).clamp(min=1e-6)
    share = ((x * along[:, :, 0] + y * along[:, :, 1]) / length).clamp_(0, 1)  # (b, t, h, w)
    away = (x - share * along[:, :, 0]).square_() + (y - share * along[:, :, 1]).square_()
    return body.radii[:, :, part, None, None] - away.sqrt_()


def turn(angle: Tensor, side: int) -> Tensor:
    """Give the direction at an angle from straight down, outwards on a side: (…, 2)."""
    return torch.stack([side * angle.sin(), angle.cos()], dim=-1)


def join(capsules: list[tuple[Tensor, Tensor]]) -> Tensor:
    """Stack (b, t, 2) ends of capsules: (b, t, PARTS, 2, 2)."""
    return torch.stack([torch.stack(pair, dim=2) for pair in capsules], dim=2)
