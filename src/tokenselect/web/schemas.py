"""What the API takes and gives, as the schema at /api/schema shows it."""

from typing import Annotated, Any, Literal

from pydantic import BaseModel, ConfigDict, Field

from tokenselect.measure.cost import Layer
from tokenselect.web.jobs import JobState


class Asked(BaseModel):
    """The model and the plan that a client wants; unknown keys are refused."""

    model_config = ConfigDict(extra="forbid")
    model: str | None = Field(None, description="key from /api/models; the first if not given")
    plan: str | None = Field(None, max_length=500, description="such as T0_0.6-S4_0.9 or dense")
    method: str | None = Field(None, description="how to select, in place of the model's own")


class JobRequest(Asked):
    """One clip of a video under one plan, and dense beside it."""

    video: str = Field(description="id of an upload, or sample:0 to sample:7")
    start: float = Field(0.0, ge=0, description="seconds into the video where the part begins")
    seconds: float | None = Field(None, gt=0, description="of the part; the clip is its middle")
    repeats: int = Field(3, ge=0, le=20, description="timed forwards; 0 for no timing")


class LiveRequest(Asked):
    """The last seconds of a camera."""

    frames: list[str] = Field(min_length=1, max_length=96, description="JPEG as data addresses")
    fps: float = Field(gt=0, le=240)


class Message(BaseModel):
    """What went wrong."""

    detail: str


def fails(*codes: int) -> dict[int | str, dict[str, Any]]:
    """Describe the answers of a route that say what went wrong."""
    return {code: {"model": Message} for code in codes}


class ModelEntry(BaseModel):
    """A model on the list."""

    key: str
    title: str


class ModelDetail(ModelEntry):
    """What is known of a model once it is open."""

    name: str
    blocks: int = Field(description="a site may be before block 0 to blocks − 1")
    sites: list[str] | None = Field(description="with a trained selector; null for any")
    plan: str = Field(description="to begin with")
    method: str
    first_method: str | None = Field(description="to begin with, where the own one is not trained")
    input: list[int] = Field(description="frames, height and width of a clip")
    classes: int
    notes: list[str]


class SiteEntry(BaseModel):
    """One site of a plan."""

    text: str
    kind: Literal["T", "S"]
    block: int
    ratio: float | None = Field(description="null where the plan gives exact counts")


class PlanEntry(BaseModel):
    """A plan that the model takes."""

    plan: str = Field(description="its canonical text")
    sites: list[SiteEntry]
    notes: list[str]


class SampleEntry(BaseModel):
    """A clip of our own."""

    video: str
    label: str
    picture: str = Field(description="address of one frame")


class Info(BaseModel):
    """What there is to choose from, and the limits."""

    models: list[ModelEntry]
    methods: list[str]
    samples: list[SampleEntry]
    max_mb: float
    max_seconds: float


class VideoEntry(BaseModel):
    """An upload that was opened."""

    video: str = Field(description="its id, for jobs")
    name: str
    seconds: float
    frames: int
    fps: float
    width: int
    height: int


class Guess(BaseModel):
    """A class and how likely it is."""

    label: str
    probability: float


BOX = "kept part of each frame, x0 y0 x1 y1 as shares of its sides; null: dropped"
Boxes = Annotated[list[list[float] | None], Field(description=BOX)]


class LiveEntry(BaseModel):
    """What the last seconds show, and what of them was kept."""

    top: list[Guess]
    plan: str
    frames: list[int] = Field(description="of those sent, the ones that the clip has")
    kept: Boxes
    milliseconds: float
    saved: float = Field(description="share of the multiply-adds")
    notes: list[str]


class ShownSite(BaseModel):
    """What one site kept, and why."""

    text: str
    kind: str
    block: int
    before: list[int] = Field(description="frames, rows, columns given to the site")
    after: list[int] = Field(description="and what it gave on")
    scores: list[float | None] = Field(description="of each frame of tokens; null: gone before")
    boxes: Boxes
    grid: list[float] = Field(description="place of the cells of `heat` and `gone`")
    heat: str | None = Field(None, description="picture: scores of the patches, frames abreast")
    gone: str | None = Field(None, description="picture: dropped cells inside the boxes")


class ShownPlan(BaseModel):
    """One plan on the clip."""

    plan: str
    gmacs: float
    method: str | None = Field(description="that selected; null of the dense model")
    milliseconds: float | None
    spread: float | None = Field(description="of the milliseconds; null where there is one run")
    share: float = Field(description="of the pixels that reach the end")
    top: list[Guess]
    layers: list[Layer]
    sites: list[ShownSite]


class ShownClip(BaseModel):
    """The clip as it was in the video."""

    name: str
    input: list[int]
    stride: list[int] = Field(description="frames, rows, columns from token to token")
    width: int
    height: int
    rate: float
    numbers: list[int] = Field(description="of its frames in the video")
    times: list[float]
    view: list[float] = Field(description="what the model sees of a frame")
    frames: list[str] = Field(description="pictures as data addresses; none if not wanted")


class Story(BaseModel):
    """The result of a job: dense first, then the plan."""

    start: int
    model: str
    notes: list[str]
    clip: ShownClip
    plans: list[ShownPlan]


class JobEntry(BaseModel):
    """How far a job is."""

    job: str = Field(validation_alias="id")
    state: JobState
    doing: str
    progress: float = Field(description="0 to 1")
    error: str | None = None
    result: Story | None = None
