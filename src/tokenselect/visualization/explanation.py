"""What there is to see of one clip: plain values, computed elsewhere, drawn by this package."""

from dataclasses import dataclass, field

import torch
from torch import Tensor

from tokenselect.data.clips import View
from tokenselect.measure.cost import Layer, Timing
from tokenselect.plan import THW
from tokenselect.visualization.tracing import KeptPixels, to_pixels


@dataclass(frozen=True)
class ClipStory:
    """The clip as it was in the video, and where the model looked."""

    name: str  # of the video
    frames: Tensor  # (f, 3, h, w) uint8, whole frames of the video
    numbers: list[int]  # which frames of the video they are
    times: list[float]  # seconds at which they are shown
    view: View  # what of them the model saw
    stride: THW  # frames, rows and columns of the model's input from one token to the next

    @property
    def video(self) -> THW:
        """Frames, height and width of the model's input."""
        return len(self.frames), *self.view.size

    @property
    def rate(self) -> float:
        """Frames per second at which they pass at the video's own pace."""
        span = self.times[-1] - self.times[0]
        return min(60.0, (len(self.times) - 1) / span) if span > 0 else 8.0

    @property
    def whole(self) -> KeptPixels:
        """What a dense model keeps: all it sees."""
        grid = [-(-side // step) for side, step in zip(self.video, self.stride, strict=True)]
        return to_pixels(torch.ones(grid, dtype=torch.bool), stride=self.stride, video=self.video)


@dataclass(frozen=True)
class SiteStory:
    """What one site kept, and why."""

    text: str  # the site as the plan writes it, "T0_0.6"
    kind: str  # "T" or "S"
    block: int  # the selection ran before it
    thw_before: THW  # grid that the site was given
    thw_after: THW  # grid that it gave on
    # (t, h, w) of the embedding's grid: the score of the frame (T) or of the patch (S) that stood
    # for each cell, NaN where it was gone already
    scores: Tensor
    kept: KeptPixels  # what is left after the site

    @property
    def frame_scores(self) -> Tensor:
        """(t,) score of each token frame, the average of its patches where these were scored."""
        return self.scores.flatten(1).nanmean(dim=1)


@dataclass(frozen=True)
class PlanStory:
    """One plan on the clip."""

    plan: str  # its text, "dense" for none
    probabilities: Tensor  # (classes,)
    sites: list[SiteStory]  # in the order they ran
    layers: list[Layer]  # costs in the order they ran; they add up to the whole
    milliseconds: Timing | None = None  # of one forward; None where it was not measured
    method: str | None = None  # that selected; None of a dense model

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
    """A clip, a model and one or more plans; the first plan is the one to compare with."""

    model: str  # its name
    class_names: list[str]  # of its outputs
    clip: ClipStory  # what it saw
    plans: list[PlanStory]  # what it made of it
    # what the reader must know, such as that the weights are random
    notes: list[str] = field(default_factory=list)

    def kept(self, plan: PlanStory) -> KeptPixels:
        """Give what is left of the clip at the end of a plan."""
        return plan.sites[-1].kept if plan.sites else self.clip.whole
