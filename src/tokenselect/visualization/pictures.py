"""Pictures of one clip: the film strip (Figure 4), and the clip as a moving picture."""

import os
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

import numpy as np
import torch
from PIL import Image, ImageDraw
from torch import Tensor

from tokenselect.data import write_video
from tokenselect.visualization.explanation import Explanation, PlanStory, SiteStory
from tokenselect.visualization.painting import (
    FAINT,
    GONE,
    INK,
    KEPT,
    LINE,
    WHITE,
    FramePainter,
    letters,
)

GAP, MARGIN, GUTTER = 6, 16, 92
COLUMNS = 8
BAR_HEIGHT = 54


@dataclass(frozen=True)
class Band:
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
                place = (MARGIN, y + 19)
                pen.multiline_text(place, band.note, font=letters(11), fill=FAINT, spacing=3)
            y += band.pictures[cell].height + GAP
    return sheet


def _heading(explanation: Explanation, plan: PlanStory) -> list[str]:
    (label, probability), *_ = plan.top(1)
    dense = explanation.plans[0]
    cost = f"{plan.gmacs:.3g} GMACs"
    if dense.plan != plan.plan:
        cost += f" instead of {dense.gmacs:.3g}"
    if plan.milliseconds is not None:
        cost += f", {plan.milliseconds} ms"
        if dense.milliseconds is not None and dense.plan != plan.plan:
            cost += f" instead of {dense.milliseconds}"
    share = explanation.kept(plan).share
    answer = f"{explanation.class_names[label]} ({probability:.0%})"
    lines = [
        f"{explanation.clip.name}   {explanation.model}   {plan.plan}",
        f"{answer}   {cost}   {share:.0%} of the pixels reach the end",
    ]
    return lines + [f"Note: {note}" for note in explanation.notes]


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
    told = "rows: label, columns: answer"
    pen.text((gutter, gutter + side + 12), told, font=letters(13), fill=FAINT)
    return sheet


FOOT = 44


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
    drawn = [draw_overlay(explanation, plan, width=width) for plan in plans]
    frames = torch.cat(drawn, dim=3)
    rate = explanation.clip.rate
    if Path(path).suffix.lower() != ".gif":
        write_video(path, frames, fps=rate, options={"crf": "18"})
        return
    pictures = [Image.fromarray(frame) for frame in frames.permute(0, 2, 3, 1).numpy()]
    duration = max(20, round(1000 / rate))
    pictures[0].save(path, save_all=True, append_images=pictures[1:], duration=duration, loop=0)
