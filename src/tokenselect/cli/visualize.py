"""`tokenselect visualize`: pictures of what a model keeps of a video."""

import warnings
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path

from PIL import Image
from rich.console import Console
from rich.markup import escape
from torch import nn

from tokenselect.checkpoints import plan_of, with_plan
from tokenselect.checkpoints.model import DEFAULT_PLAN
from tokenselect.cli.options import ModelOptions
from tokenselect.cli.terminal import telling
from tokenselect.data.sources import find_videos
from tokenselect.inference.explain import explain_video
from tokenselect.plan import SelectionPlan, Site
from tokenselect.visualization.explanation import Explanation
from tokenselect.visualization.pictures import draw_film_strip, write_overlay
from tokenselect.visualization.report import write_report

BUDGETS = (0.9, 0.7, 0.5, 0.3)  # of the plans that a report sets beside the asked one


def visualize(
    video: str,
    *,
    options: ModelOptions,
    out: str = "kept.html",
    start: float = 0.0,
    seconds: float | None = None,
    width: int | None = None,
    repeats: int = 3,
) -> None:
    """Draw which frames and regions of a video a model keeps, with the scores that decided.

    Several plans with commas between are set side by side.

    Args:
        video: file, folder of pictures, http address, camera's number, or sample.
        options: which model.
        out: where to write; .png is a film strip, .mp4 and .gif an overlay of the clip, .html a
            report with everything.
        start: seconds into the video at which the part to look at begins.
        seconds: length of that part; all that follows if not given. The clip is its middle.
        width: of a frame in the picture, in pixels.
        repeats: timed forwards of each plan in turns; 0 for no timing.
    """
    write = writer_of(out)
    with telling("loading the model") as tell:
        (found, *others) = find_videos([video], seconds=seconds or 4.0, tell=tell)
        if others:
            raise ValueError(f"visualize takes one video; {video} has {1 + len(others)}")
        loaded, is_report = options.load([video], plan=None), Path(out).suffix == ".html"
        models = choose_plans(loaded, options.plan, method=options.method, is_report=is_report)
        source = found.open()
        try:
            explanation = explain_video(
                models,
                source,
                name=Path(found.name).name,
                start=start,
                seconds=seconds,
                repeats=repeats,
                tell=tell,
            )
        finally:
            source.close()
        tell(f"writing {out}")
        write(Path(out), explanation, width)
    console = Console(stderr=True)
    for note in explanation.notes:
        console.print(f"[yellow]Note:[/] {escape(note)}")
    print(out)


def choose_plans(
    model: nn.Module, plan: str | None, *, method: str | None, is_report: bool
) -> list[nn.Module]:
    """Put the dense model first, then the plans from the dearest to the cheapest."""
    if plan is not None:
        plans = [SelectionPlan.parse(text) for text in plan.split(",")]
    else:
        own = plan_of(model)
        if not own:  # a dense model has no trained selector
            own, method = SelectionPlan.parse(DEFAULT_PLAN), method or "motion"
        plans = [own, *(vary(own) if is_report else ())]
    different = {str(plan): plan for plan in plans if plan}
    with warnings.catch_warnings():
        if plan is None:  # nobody asked for a budget at which some site keeps all
            warnings.filterwarnings("ignore", message="site .* keeps all of")
        selected = [with_plan(model, plan, method=method) for plan in different.values()]
    return [with_plan(model, "dense"), *selected]


def vary(plan: SelectionPlan) -> list[SelectionPlan]:
    """Give plans at the same sites with other ratios."""
    return [
        SelectionPlan(tuple(Site(site.kind, site.block, ratio) for site in plan))
        for ratio in BUDGETS
    ]


def writer_of(out: str) -> Callable[[Path, Explanation, int | None], None]:
    """Find who writes such a file; refuse a place that cannot be written before any work."""
    still, moving = (".png", ".jpg", ".webp"), (".mp4", ".gif")
    writers = {
        **dict.fromkeys(still, write_strip),
        **dict.fromkeys(moving, write_moving),
        ".html": write_page,
    }
    suffix = Path(out).suffix.lower()
    if suffix not in writers:
        raise ValueError(f"out must end with one of {', '.join(writers)}, got {out!r}")
    if not Path(out).resolve().parent.is_dir():
        raise FileNotFoundError(f"the folder of {out} does not exist")
    return writers[suffix]


def write_strip(path: Path, explanation: Explanation, width: int | None) -> None:
    """Write the film strips of all plans, one below the other."""
    plans = explanation.plans[1:] or explanation.plans
    strips = [draw_film_strip(explanation, plan, thumb_width=width or 150) for plan in plans]
    sheet = Image.new("RGB", (strips[0].width, sum(s.height for s in strips)), "white")
    top = 0
    for strip in strips:
        sheet.paste(strip, (0, top))
        top += strip.height
    sheet.save(path)


def write_moving(path: Path, explanation: Explanation, width: int | None) -> None:
    """Write the overlays of all plans, one beside the other."""
    plans = explanation.plans[1:] or explanation.plans
    write_overlay(path, explanation, plans, width=width or 480)


def write_page(path: Path, explanation: Explanation, width: int | None) -> None:
    """Write the report; its frames take the width of the window."""
    dense, *plans = explanation.plans
    ordered = [dense, *sorted(plans, key=lambda plan: -plan.gmacs)]
    start = plans[0].plan if plans else None
    write_report(path, replace(explanation, plans=ordered), start=start)
