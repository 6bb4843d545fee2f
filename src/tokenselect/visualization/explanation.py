"""What there is to see of one clip: plain values, computed elsewhere, drawn by this package."""

from __future__ import annotations

from dataclasses import dataclass, field

import torch
from torch import Tensor

from tokenselect.data.clips import View
from tokenselect.measure.cost import Layer
from tokenselect.plan import THW
from tokenselect.visualization.tracing import KeptPixels, to_pixels


@dataclass(frozen=True)
class ClipStory:
    """The clip as it was in the video, and where the model looked.

    Attributes:
        name: of the video.
        frames: (f, 3, h, w) uint8, whole frames of the video.
        numbers: which frames of the video they are.
        times: seconds at which they are shown.
        view: what of them the model saw.
        stride: frames, rows and columns of the model's input from one token to the next.
    """

    name: str
    frames: Tensor
    numbers: list[int]
    times: list[float]
    view: View
    stride: THW

    @property
    def video(self) -> THW:
        """Frames, height and width of the model's input."""
        return len(self.frames), *self.view.size

    @property
    def whole(self) -> KeptPixels:
        """What a dense model keeps: all it sees."""
        sides = zip(self.video, self.stride, strict=True)
        grid = [-(-side // step) for side, step in sides]
        return to_pixels(torch.ones(grid, dtype=torch.bool), stride=self.stride, video=self.video)


@dataclass(frozen=True)
class SiteStory:
    """What one site kept, and why.

    Attributes:
        text: the site as the plan writes it, "T0_0.6".
        kind: "T" or "S".
        block: the selection ran before it.
        thw_before: grid that the site was given.
        thw_after: grid that it gave on.
        scores: (t, h, w) of the embedding's grid: the score of the frame (T) or of the patch (S)
            that stood for each cell, NaN where it was gone already.
        kept: what is left after the site.
    """

    text: str
    kind: str
    block: int
    thw_before: THW
    thw_after: THW
    scores: Tensor
    kept: KeptPixels

    @property
    def frame_scores(self) -> Tensor:
        """(t,) score of each token frame, the average of its patches where these were scored."""
        return self.scores.flatten(1).nanmean(dim=1)


@dataclass(frozen=True)
class PlanStory:
    """One plan on the clip.

    Attributes:
        plan: its text, "dense" for none.
        probabilities: (classes,).
        sites: in the order they ran.
        layers: costs in the order they ran; they add up to the whole.
        milliseconds: of one forward; None where it was not measured.
    """

    plan: str
    probabilities: Tensor
    sites: list[SiteStory]
    layers: list[Layer]
    milliseconds: float | None = None

    @property
    def gmacs(self) -> float:
        """Multiply-adds of one forward, in units of 10⁹."""
        return sum(layer.gmacs for layer in self.layers)

    def top(self, count: int) -> list[tuple[int, float]]:
        """List the most likely classes with their probabilities."""
        values, classes = self.probabilities.topk(min(count, len(self.probabilities)))
        return list(zip(classes.tolist(), values.tolist(), strict=True))


@dataclass(frozen=True)
class Explanation:
    """A clip, a model and one or more plans; the first plan is the one to compare with.

    Attributes:
        model: its name.
        class_names: of its outputs.
        clip: what it saw.
        plans: what it made of it.
        notes: what the reader must know, such as that the weights are random.
    """

    model: str
    class_names: list[str]
    clip: ClipStory
    plans: list[PlanStory]
    notes: list[str] = field(default_factory=list)

    def kept(self, plan: PlanStory) -> KeptPixels:
        """Give what is left of the clip at the end of a plan."""
        return plan.sites[-1].kept if plan.sites else self.clip.whole
