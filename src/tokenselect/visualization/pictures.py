"""Pictures of one clip: its frames, the film strip (Figure 4), and a moving picture.

What was dropped is dimmed, what was kept is boxed, and scores are shown as heat.
"""

import os
from collections.abc import Sequence
from pathlib import Path
from typing import NamedTuple

import numpy as np
import torch
from PIL import Image, ImageDraw, ImageEnhance
from PIL.ImageFont import load_default as letters
from torch import Tensor

from tokenselect.data import write_video
from tokenselect.data.transforms import resize
from tokenselect.locking import writing
from tokenselect.visualization.explanation import ClipStory, Explanation, PlanStory, SiteStory
from tokenselect.visualization.tracing import KeptPixels

Colour = tuple[int, int, int]

WHITE, INK, FAINT, LINE = (255, 255, 255), (32, 33, 36), (120, 124, 130), (214, 217, 222)
KEPT, GONE = (255, 159, 10), (190, 194, 200)  # boxes and bars of what stays, bars of what goes

# Low to high; lightness rises all the way, so it reads in grey and without red or green.
HEAT = ((13, 8, 64), (84, 19, 120), (166, 39, 109), (224, 82, 68), (250, 150, 40), (252, 240, 140))


def heat_colours(values: Tensor) -> Tensor:
    """Map (...) values in [0, 1] to (..., 3) colours in [0, 255]; NaN gives black."""
    ramp = torch.tensor(HEAT, dtype=torch.float32)
    place = values.nan_to_num(0.0).clamp(0, 1) * (len(ramp) - 1)
    low = place.floor().long().clamp(max=len(ramp) - 2)
    share = (place - low)[..., None]
    colours = ramp[low] * (1 - share) + ramp[low + 1] * share
    return colours * (~values.isnan())[..., None]


Corners = tuple[int, int, int, int]  # x0, y0, x1, y1, the ends not included

DROPPED_LIGHT, OUTSIDE_LIGHT = 0.3, 0.42  # of dropped frames, and around the kept region


class FramePainter:
    """Paints the frames of a clip at one width; with even sides for video encoders."""

    def __init__(self, clip: ClipStory, *, width: int, is_even: bool = False) -> None:
        height, full = clip.view.source
        down = max(1, round(height * width / full))
        self.size = (width + width % 2, down + down % 2) if is_even else (width, down)
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
        if kept.frames[frame]:  # in white: heat has our colour
            outline(ImageDraw.Draw(seen), self.place(kept.boxes[frame]), self.line, colour=WHITE)
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


GAP, MARGIN, GUTTER = 6, 16, 92
COLUMNS, BAR_HEIGHT, FOOT = 8, 54, 44


class Band(NamedTuple):
    """One row of pictures, one for each token frame, and what they show."""

    label: str
    note: str
    pictures: list[Image.Image]


def draw_film_strip(
    explanation: Explanation, plan: PlanStory, *, thumb_width: int = 150, with_scores: bool = True
) -> Image.Image:
    """Draw a plan's film strip, one column for each frame of tokens, with each site's scores."""
    clip, kept = explanation.clip, explanation.kept(plan)
    painter = FramePainter(clip, width=thumb_width)
    firsts = range(0, clip.video[0], clip.stride[0])  # of the frames of each token frame
    bands = [Band("kept", "", [painter.kept(frame, kept) for frame in firsts])]
    bands += [_site_band(site, painter) for site in plan.sites if with_scores]
    columns, head = min(COLUMNS, len(firsts)), _heading(explanation, plan)
    top = MARGIN + 22 * len(head) + 6
    row_height = sum(band.pictures[0].height + GAP for band in bands) + 22
    width = 2 * MARGIN + GUTTER + columns * (thumb_width + GAP) - GAP
    height = top + -(-len(firsts) // columns) * row_height + MARGIN - GAP
    sheet = Image.new("RGB", (width, height), WHITE)
    pen = ImageDraw.Draw(sheet)
    for number, line in enumerate(head):
        size, colour = (17, INK) if number == 0 else (14, FAINT)
        pen.text((MARGIN, MARGIN + 22 * number), line, font=letters(size), fill=colour)
    for cell, first in enumerate(firsts):
        left = MARGIN + GUTTER + cell % columns * (thumb_width + GAP)
        y = top + cell // columns * row_height
        pen.text((left, y), f"{clip.times[first]:.2f} s", font=letters(12), fill=FAINT)
        y += 18
        for band in bands:
            sheet.paste(band.pictures[cell], (left, y))
            if cell % columns == 0:
                pen.text((MARGIN, y), band.label, font=letters(14), fill=INK)
                note = (MARGIN, y + 19), band.note
                pen.multiline_text(*note, font=letters(11), fill=FAINT, spacing=3)
            y += band.pictures[cell].height + GAP
    return sheet


def _heading(explanation: Explanation, plan: PlanStory) -> list[str]:
    (label, probability), *_ = plan.top(1)
    dense = explanation.plans[0]
    is_dense = dense.plan == plan.plan
    cost = f"{plan.gmacs:.3g} GMACs" + ("" if is_dense else f" instead of {dense.gmacs:.3g}")
    if plan.milliseconds is not None:
        is_alone = is_dense or dense.milliseconds is None
        before = "" if is_alone else f" instead of {dense.milliseconds}"
        cost += f", {plan.milliseconds} ms{before}"
    answer = f"{explanation.class_names[label]} ({probability:.0%})"
    return [
        f"{explanation.clip.name}   {explanation.model}   {plan.plan}",
        f"{answer}   {cost}   {explanation.kept(plan).share:.0%} of the pixels reach the end",
        *(f"Note: {note}" for note in explanation.notes),
    ]


def _site_band(site: SiteStory, painter: FramePainter) -> Band:
    """Draw the scores of a site's frames as bars, those of its patches as heat."""
    (t, h, w), before = site.thw_after, site.thw_before
    step = painter.clip.stride[0]
    if site.kind == "T":
        note = f"{t} of {before[0]} frames"
        columns = site.frame_scores, stretch(site.frame_scores), site.kept.frames[::step]
        pictures = [draw_bar(*cell, painter.size[0]) for cell in zip(*columns, strict=True)]
    else:
        note = f"{h} x {w} of {before[1]} x {before[2]}"
        cells = enumerate(stretch(site.scores))
        pictures = [painter.heat(cell * step, scores, site.kept) for cell, scores in cells]
    return Band(site.text, f"before block {site.block}\n{note}", pictures)


def draw_bar(score: Tensor, share: Tensor, is_kept: Tensor, width: int) -> Image.Image:
    """Draw one frame's score as a bar with its figure; a frame that was gone has none."""
    picture = Image.new("RGB", (width, BAR_HEIGHT), WHITE)
    pen = ImageDraw.Draw(picture)
    floor, room = BAR_HEIGHT - 1, BAR_HEIGHT - 18
    pen.line((0, floor, width, floor), fill=LINE)
    if not bool(score.isnan()):
        top = floor - 2 - round(float(share) * (room - 2))
        pen.rectangle((0, top, width, floor), fill=KEPT if is_kept else GONE)
        text = f"{float(score):.2f}"
        pen.text((2, top - 15), text, font=letters(12), fill=INK if is_kept else FAINT)
    return picture


def stretch(values: Tensor) -> Tensor:
    """Bring values to [0, 1]; all alike become 1/2, NaN stays."""
    known = values[~values.isnan()]
    if known.numel() == 0 or float(known.max() - known.min()) < 1e-12:
        return torch.full_like(values, 0.5).where(~values.isnan(), values)
    return (values - known.min()) / (known.max() - known.min())


def draw_confusion(counts: Sequence[Sequence[int]], class_names: Sequence[str]) -> Image.Image:
    """Draw how often videos of each class (row) were taken for which (column)."""
    cell = max(14, min(56, 1200 // len(class_names)))
    font = letters(min(15, cell - 2))
    gutter = 24 + round(max(font.getlength(name) for name in class_names))
    side = cell * len(class_names)
    sheet = Image.new("RGB", (gutter + side + MARGIN, gutter + side + 40), WHITE)
    pen = ImageDraw.Draw(sheet)
    names = Image.new("RGB", (gutter, side), WHITE)  # of the columns, turned below
    for number, name in enumerate(class_names):
        y = round((number + 0.5) * cell)
        pen.text((gutter - 8, gutter + y), name, font=font, fill=INK, anchor="rm")
        ImageDraw.Draw(names).text((8, y), name, font=font, fill=INK, anchor="lm")
    sheet.paste(names.transpose(Image.Transpose.ROTATE_90), (gutter, 0))
    for row, found in enumerate(counts):
        for column, count in enumerate(found):
            share = count / max(sum(found), 1)
            x, y = gutter + column * cell, gutter + row * cell
            shade = tuple(round(255 - share * (255 - dark)) for dark in (20, 60, 140))
            pen.rectangle((x, y, x + cell - 2, y + cell - 2), fill=shade, outline=LINE)
            if count and cell >= 24:
                ink = WHITE if share > 0.5 else INK
                middle = (x + cell / 2, y + cell / 2)
                pen.text(middle, str(count), font=font, fill=ink, anchor="mm")
    foot = (gutter, gutter + side + 12), "rows: label, columns: answer"
    pen.text(*foot, font=letters(13), fill=FAINT)
    return sheet


def draw_overlay(explanation: Explanation, plan: PlanStory, *, width: int = 480) -> Tensor:
    """Draw every frame of the clip above a row of all frames: (f, 3, h, w) uint8, even sides."""
    painter = FramePainter(explanation.clip, width=width, is_even=True)
    kept, ((label, probability),) = explanation.kept(plan), plan.top(1)
    answer = f"{plan.plan}   {explanation.class_names[label]} ({probability:.0%})"
    pictures, (width, top) = [], painter.size
    for frame, time in enumerate(explanation.clip.times):
        sheet = Image.new("RGB", (width, top + FOOT), WHITE)
        sheet.paste(painter.kept(frame, kept), (0, 0))
        pen, count = ImageDraw.Draw(sheet), len(kept.frames)
        for number, is_kept in enumerate(kept.frames):
            left, right = width * number // count, width * (number + 1) // count - 2
            pen.rectangle((left, top + 6, right, top + 16), fill=KEPT if is_kept else GONE)
            if number == frame:
                pen.rectangle((left, top + 3, right, top + 19), outline=INK, width=2)
        pen.text((4, top + 23), f"{time:.2f} s   {answer}", font=letters(13), fill=FAINT)
        pictures.append(torch.from_numpy(np.array(sheet)).permute(2, 0, 1))
    return torch.stack(pictures)


def write_overlay(
    path: str | os.PathLike[str],
    explanation: Explanation,
    plans: Sequence[PlanStory],
    *,
    width: int = 480,
) -> None:
    """Write the overlays of plans side by side as a video, or as a GIF if the name ends so."""
    frames = torch.cat([draw_overlay(explanation, plan, width=width) for plan in plans], dim=3)
    rate = explanation.clip.rate
    with writing(path) as unfinished:
        if Path(path).suffix.lower() != ".gif":
            return write_video(unfinished, frames, fps=rate, options={"crf": "18"})
        first, *others = [Image.fromarray(frame) for frame in frames.permute(0, 2, 3, 1).numpy()]
        duration = max(20, round(1000 / rate))
        first.save(unfinished, save_all=True, append_images=others, duration=duration, loop=0)
