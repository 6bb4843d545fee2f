"""A small explanation made by hand: no model behind it."""

import torch

from tokenselect.data.clips import View
from tokenselect.measure.cost import Timing
from tokenselect.visualization.explanation import (
    ClipStory,
    Explanation,
    Layer,
    PlanStory,
    SiteStory,
)
from tokenselect.visualization.tracing import to_pixels

STRIDE = (2, 4, 4)


def make_explanation(*, name="clip.mp4", notes=()):
    """Six frames of 40×60, seen as 16×24 from (8, 12): frames 0, 1 and 4, 5 stay, a box in each."""
    frames = torch.full((6, 3, 40, 60), 200, dtype=torch.uint8)
    view = View((40, 60), (20, 30), (2, 3, 16, 24))
    clip = ClipStory(name, frames, [0, 4, 8, 12, 16, 20], [n / 5 for n in range(6)], view, STRIDE)
    is_kept = torch.zeros(3, 4, 6, dtype=torch.bool)
    is_kept[[0, 2]] = True
    frames_left = to_pixels(is_kept, stride=STRIDE, video=clip.video)
    scores = torch.tensor([0.9, 0.1, 0.5])[:, None, None].expand(3, 4, 6)
    first = SiteStory("T0=2", "T", 0, (3, 4, 6), (2, 4, 6), scores, frames_left)
    boxed = torch.zeros_like(is_kept)
    boxed[0, 1:3, 2:5] = boxed[2, 0:2, 0:3] = True
    left = to_pixels(boxed, stride=STRIDE, video=clip.video)
    maps = torch.rand(3, 4, 6).masked_fill(~is_kept, float("nan"))
    second = SiteStory("S1=2x3", "S", 1, (2, 4, 6), (2, 2, 3), maps, left)
    dense = PlanStory(
        "dense",
        torch.tensor([0.2, 0.5, 0.3]),
        [],
        [Layer("embedding, head", 0.1), Layer("block 0", 0.5, (3, 4, 6)), Layer("block 1", 0.5)],
        Timing([20.0, 21.0, 19.5]),
    )
    selected = PlanStory(
        "T0=2-S1=2x3",
        torch.tensor([0.1, 0.6, 0.3]),
        [first, second],
        [
            Layer("embedding, head", 0.1),
            Layer("T0", 0.001),
            Layer("block 0", 0.3, (2, 4, 6)),
            Layer("S1", 0.002),
            Layer("block 1", 0.1, (2, 2, 3)),
        ],
        Timing([12.0, 12.5, 11.5]),
        "motion",
    )
    return Explanation("made", ["a", "b", "c"], clip, [dense, selected], list(notes))
