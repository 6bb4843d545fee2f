"""One frame as a picture: what was dropped dimmed, what was kept boxed, scores as heat."""

import torch
from PIL import Image, ImageDraw, ImageEnhance, ImageFont
from torch import Tensor

from tokenselect.data.transforms import resize
from tokenselect.visualization.explanation import ClipStory
from tokenselect.visualization.tracing import KeptPixels

Colour = tuple[int, int, int]

WHITE: Colour = (255, 255, 255)
INK: Colour = (32, 33, 36)
FAINT: Colour = (120, 124, 130)
LINE: Colour = (214, 217, 222)
KEPT: Colour = (255, 159, 10)  # what stays: boxes and bars
GONE: Colour = (190, 194, 200)

# Low to high; lightness rises all the way, so it reads in grey and without red or green.
HEAT: tuple[Colour, ...] = (
    (13, 8, 64),
    (84, 19, 120),
    (166, 39, 109),
    (224, 82, 68),
    (250, 150, 40),
    (252, 240, 140),
)


def heat_colours(values: Tensor) -> Tensor:
    """Map (...) values in [0, 1] to (..., 3) colours in [0, 255]; NaN gives black."""
    ramp = torch.tensor(HEAT, dtype=torch.float32)
    place = values.nan_to_num(0.0).clamp(0, 1) * (len(ramp) - 1)
    low = place.floor().long().clamp(max=len(ramp) - 2)
    share = (place - low)[..., None]
    colours = ramp[low] * (1 - share) + ramp[low + 1] * share
    return colours * (~values.isnan())[..., None]


def letters(size: float) -> ImageFont.FreeTypeFont | ImageFont.ImageFont:
    """Give the font that comes with Pillow."""
    return ImageFont.load_default(size=size)


Corners = tuple[int, int, int, int]  # x0, y0, x1, y1, the ends not included

DROPPED_LIGHT, OUTSIDE_LIGHT = 0.3, 0.42  # of dropped frames, and around the kept region


class FramePainter:
    """Paints the frames of a clip at one width; with even sides for video encoders."""

    def __init__(self, clip: ClipStory, *, width: int, is_even: bool = False) -> None:
        height, full = clip.view.source
        self.size = (width, max(1, round(height * width / full)))
        if is_even:
            self.size = (self.size[0] + self.size[0] % 2, self.size[1] + self.size[1] % 2)
        self.clip = clip
        self.scale = (self.size[0] / full, self.size[1] / height)
        small = resize(clip.frames, (self.size[1], self.size[0]))
        self.pictures = [Image.fromarray(p) for p in small.permute(0, 2, 3, 1).numpy()]
        self.line = max(2, round(width / 90))

    def place(self, box: Tensor) -> Corners:
        """Map a (4,) box of the model's input to whole pixels of the picture."""
        x0, y0, x1, y1 = self.clip.view.to_source(box).tolist()
        across, down = self.scale
        return round(x0 * across), round(y0 * down), round(x1 * across), round(y1 * down)

    def lay(self, pixels: Tensor) -> Image.Image:
        """Enlarge the (h, w) or (h, w, 3) pixels of the model's input to their place in a frame."""
        x0, y0, x1, y1 = self.place(torch.tensor([0, 0, *reversed(self.clip.view.size)]))
        layer = Image.fromarray(pixels.to(torch.uint8).numpy()).resize((x1 - x0, y1 - y0), 0)
        sheet = Image.new(layer.mode, self.size)
        sheet.paste(layer, (x0, y0))
        return sheet

    def kept(self, frame: int, kept: KeptPixels) -> Image.Image:
        """Dim what was dropped of a frame and box what stays."""
        picture = self.pictures[frame]
        if not kept.frames[frame]:
            return dim(picture, DROPPED_LIGHT)
        mask = self.lay(255 * kept.mask[frame])
        painted = Image.composite(picture, dim(picture, OUTSIDE_LIGHT), mask)
        if kept.are_full[frame]:
            outline(ImageDraw.Draw(painted), self.place(kept.boxes[frame]), self.line)
        return painted

    def heat(self, frame: int, scores: Tensor, kept: KeptPixels) -> Image.Image:
        """Lay (h, w) scores in [0, 1] of the cells over a frame; NaN is dimmed."""
        grey = dim(self.pictures[frame], 0.9).convert("L").convert("RGB")
        colours = self.lay(kept.enlarge(heat_colours(scores)[None])[0])
        known = self.lay(kept.enlarge(255 * ~scores.isnan()[None])[0])
        rest = dim(self.pictures[frame], DROPPED_LIGHT)
        seen = Image.composite(Image.blend(grey, colours, 0.725), rest, known)
        if kept.frames[frame]:
            box = self.place(kept.boxes[frame])
            outline(ImageDraw.Draw(seen), box, self.line, colour=WHITE)  # heat has our colour
        return seen


def dim(picture: Image.Image, light: float) -> Image.Image:
    """Take most of the colour and of the light."""
    return ImageEnhance.Brightness(ImageEnhance.Color(picture).enhance(0.25)).enhance(light)


def outline(pen: ImageDraw.ImageDraw, box: Corners, width: int, *, colour: Colour = KEPT) -> None:
    """Draw a box's border inside it, with a dark line that shows on bright pictures."""
    x0, y0, x1, y1 = box
    pen.rectangle((x0, y0, x1 - 1, y1 - 1), outline=colour, width=width)
    inner = (x0 + width, y0 + width, x1 - 1 - width, y1 - 1 - width)
    if inner[0] < inner[2] and inner[1] < inner[3]:
        pen.rectangle(inner, outline=INK, width=1)
