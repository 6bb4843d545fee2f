"""The report as one HTML page: an explanation as JSON, put into markup, style and script."""

import base64
import html
import io
import json
import os
from dataclasses import asdict
from importlib import resources
from typing import Any

import torch
from PIL import Image
from torch import Tensor

from tokenselect.data.transforms import resize
from tokenselect.locking import write_whole
from tokenselect.visualization.explanation import ClipStory, Explanation, PlanStory, SiteStory
from tokenselect.visualization.pictures import heat_colours, stretch
from tokenselect.visualization.tracing import KeptPixels

FRAME_WIDTH = 480  # at most, of a frame in the page
LISTED = 5


def story_of(explanation: Explanation, *, start: str | None = None) -> dict[str, Any]:
    """Give all that the page shows; it opens with plan `start`, or with the last."""
    clip, plans = explanation.clip, [plan.plan for plan in explanation.plans]
    (height, width), frames = clip.view.source, clip.frames
    if width > FRAME_WIDTH:
        frames = resize(frames, (max(1, round(height * FRAME_WIDTH / width)), FRAME_WIDTH))
    pictures = map(Image.fromarray, frames.permute(0, 2, 3, 1).contiguous().numpy())
    return {
        "start": len(plans) - 1 if start is None else plans.index(start),
        "model": explanation.model,
        "notes": explanation.notes,
        "clip": {
            "name": clip.name,
            "input": list(clip.video),
            "stride": list(clip.stride),
            "width": width,
            "height": height,
            "rate": round(clip.rate, 3),
            "numbers": clip.numbers,
            "times": [round(time, 3) for time in clip.times],
            "view": shares(clip, torch.tensor([0, 0, *reversed(clip.view.size)])),
            "frames": [_encode(picture, "JPEG", quality=82) for picture in pictures],
        },
        "plans": [_plan(explanation, plan) for plan in explanation.plans],
    }


def _plan(explanation: Explanation, plan: PlanStory) -> dict[str, Any]:
    names = explanation.class_names
    return {
        "plan": plan.plan,
        "gmacs": plan.gmacs,
        "method": plan.method,
        "milliseconds": plan.milliseconds,
        "spread": None if plan.milliseconds is None else plan.milliseconds.spread,
        "share": explanation.kept(plan).share,
        "top": [{"label": names[n], "probability": share} for n, share in plan.top(LISTED)],
        "layers": [{**asdict(one), "thw": one.thw and list(one.thw)} for one in plan.layers],
        "sites": [_site(explanation.clip, site) for site in plan.sites],
    }


def _site(clip: ClipStory, site: SiteStory) -> dict[str, Any]:
    _, rows, columns = clip.stride
    _, height, width = site.scores.shape  # whole cells: the last ones may reach beyond the view
    told: dict[str, Any] = {
        "text": site.text,
        "kind": site.kind,
        "block": site.block,
        "before": list(site.thw_before),
        "after": list(site.thw_after),
        "scores": [None if s.isnan() else round(float(s), 4) for s in site.frame_scores],
        "boxes": boxes_of(clip, site.kept),
        "grid": shares(clip, torch.tensor([0, 0, columns * width, rows * height])),
    }
    if site.kind == "S":
        colours = heat_colours(stretch(site.scores))  # (t, h, w, 3)
        told["heat"] = encode_sprite(colours, ~site.scores.isnan())
    if not site.kept.are_full.all():
        cells = site.kept.cells[:: clip.stride[0]]
        told["gone"] = encode_sprite(torch.zeros(*cells.shape, 3), ~cells)
    return told


def boxes_of(clip: ClipStory, kept: KeptPixels) -> list[list[float] | None]:
    """Give each frame's kept box, None where the frame was dropped."""
    pairs = zip(kept.frames.tolist(), kept.boxes, strict=True)
    return [shares(clip, box) if is_kept else None for is_kept, box in pairs]


def shares(clip: ClipStory, box: Tensor) -> list[float]:
    """Map a box of the model's input to shares of the video's sides: x0, y0, x1, y1."""
    height, width = clip.view.source
    sides = torch.tensor([width, height, width, height], dtype=torch.float64)
    return [round(value, 5) for value in (clip.view.to_source(box) / sides).tolist()]


def encode_sprite(colours: Tensor, is_shown: Tensor) -> str:
    """Put the cells of all frames side by side, one pixel each, as a PNG's data address."""
    pixels = torch.cat([colours, 255.0 * is_shown[..., None]], dim=-1)  # (t, h, w, 4)
    t, h, w, _ = pixels.shape
    side_by_side = pixels.movedim(0, 1).reshape(h, t * w, 4).to(torch.uint8)
    return _encode(Image.fromarray(side_by_side.contiguous().numpy()), "PNG", optimize=True)


def _encode(picture: Image.Image, kind: str, **options: Any) -> str:
    buffer = io.BytesIO()
    picture.save(buffer, kind, **options)
    return f"data:image/{kind.lower()};base64," + base64.b64encode(buffer.getvalue()).decode()


def build_page(story: dict[str, Any]) -> str:
    """Give the HTML of one story; it needs no other file and asks for none."""
    data = json.dumps(story, ensure_ascii=False, separators=(",", ":"), allow_nan=False)
    for mark in "<\u2028\u2029":  # which could end the script element that it stands in
        data = data.replace(mark, f"\\u{ord(mark):04x}")
    return (
        read_asset("page.html")
        .replace("{{title}}", html.escape(f"{story['clip']['name']} · {story['model']}"))
        .replace("{{sections}}", read_asset("sections.html").rstrip())
        .replace("{{style}}", read_asset("report.css"))
        .replace("{{script}}", read_asset("report.js"))
        .replace("{{story}}", data)
    )


def write_report(
    path: str | os.PathLike[str], explanation: Explanation, *, start: str | None = None
) -> None:
    """Write the report of an explanation; it opens with plan `start`, or with the last."""
    page = build_page(story_of(explanation, start=start))
    write_whole(path, page)


def read_asset(name: str) -> str:
    """Read a file of the page, also from a zipped package."""
    return (resources.files(__package__) / "page" / name).read_text(encoding="utf-8")
