"""The clip as a moving picture: kept regions boxed, dropped frames dimmed, a time line below."""

from __future__ import annotations

import os
from collections.abc import Sequence
from pathlib import Path

import numpy as np
import torch
from PIL import Image, ImageDraw
from torch import Tensor

from tokenselect.data import write_video
from tokenselect.visualization.explanation import Explanation, PlanStory
from tokenselect.visualization.painting import FramePainter
from tokenselect.visualization.palette import FAINT, GONE, INK, KEPT, PAPER, letters

FOOT = 44


def draw_overlay(explanation: Explanation, plan: PlanStory, *, width: int = 480) -> Tensor:
    """Draw every frame of the clip: (f, 3, h, w) uint8 with even sides."""
    painter = FramePainter(explanation.clip, width=width, is_even=True)
    kept = explanation.kept(plan)
    pictures = []
    for frame in range(explanation.clip.video[0]):
        sheet = Image.new("RGB", (painter.size[0], painter.size[1] + FOOT), PAPER)
        sheet.paste(painter.kept(frame, kept), (0, 0))
        _draw_foot(sheet, explanation, plan, frame=frame, is_kept=kept.frames)
        pictures.append(torch.from_numpy(np.array(sheet)).permute(2, 0, 1))
    return torch.stack(pictures)


def _draw_foot(
    sheet: Image.Image, explanation: Explanation, plan: PlanStory, *, frame: int, is_kept: Tensor
) -> None:
    """Draw one cell a frame, the present one marked, and a line of text."""
    pen = ImageDraw.Draw(sheet)
    width, top = sheet.width, sheet.height - FOOT
    count = len(is_kept)
    for number in range(count):
        left, right = width * number // count, width * (number + 1) // count - 2
        colour = KEPT if is_kept[number] else GONE
        pen.rectangle((left, top + 6, right, top + 16), fill=colour)
        if number == frame:
            pen.rectangle((left, top + 3, right, top + 19), outline=INK, width=2)
    (label, probability), *_ = plan.top(1)
    time = explanation.clip.times[frame]
    text = f"{time:.2f} s   {plan.plan}   {explanation.class_names[label]} ({probability:.0%})"
    pen.text((4, top + 23), text, font=letters(13), fill=FAINT)


def clip_rate(explanation: Explanation) -> float:
    """Give the frames a second at which the clip's frames pass at the video's own pace."""
    times = explanation.clip.times
    span = times[-1] - times[0]
    return min(60.0, (len(times) - 1) / span) if span > 0 else 8.0


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
    rate = clip_rate(explanation)
    if Path(path).suffix.lower() != ".gif":
        write_video(path, frames, fps=rate, options={"crf": "18"})
        return
    pictures = [Image.fromarray(frame) for frame in frames.permute(0, 2, 3, 1).numpy()]
    duration = max(20, round(1000 / rate))
    pictures[0].save(path, save_all=True, append_images=pictures[1:], duration=duration, loop=0)
