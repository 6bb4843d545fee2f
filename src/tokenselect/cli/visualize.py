"""`tokenselect visualize`: pictures of what a model keeps of a video."""

import warnings
from dataclasses import replace
from functools import partial
from pathlib import Path

import numpy as np
from PIL import Image
from torch import nn

from tokenselect.checkpoints import plan_of, with_plan
from tokenselect.checkpoints.model import DEFAULT_PLAN
from tokenselect.cli.options import ModelOptions
from tokenselect.cli.terminal import check_folder, print_notes, telling
from tokenselect.data.sources import find_videos
from tokenselect.inference.explain import explain_video
from tokenselect.locking import writing
from tokenselect.plan import SelectionPlan, Site
from tokenselect.visualization.explanation import Explanation
from tokenselect.visualization.pictures import draw_film_strip, write_overlay
from tokenselect.visualization.report import write_report

PICTURES = (".png", ".jpg", ".webp", ".mp4", ".gif", ".html")
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

    Separate several plans by commas to see them side by side.

    Args:
        video: file, folder of pictures, http address, camera's number, or sample.
        options: which model.
        out: where to write; .png is a film strip, .mp4 and .gif an overlay of the clip, .html a
            report with everything.
        start: seconds into the video at which the part to look at begins.
        seconds: length of that part; all that follows if not given. The clip is its middle.
        width: width of a frame in the picture, in pixels.
        repeats: timed forwards of each plan in turns; 0 for no timing.
    """
    if Path(out).suffix.lower() not in PICTURES:
        raise ValueError(f"out must end with one of {', '.join(PICTURES)}, got {out!r}")
    check_folder(out)
    with telling("loading the model") as tell:
        (found, *others) = find_videos([video], seconds=seconds or 4.0, tell=tell)
        if others:
            raise ValueError(f"visualize takes one video; {video} has {1 + len(others)}")
        loaded, is_report = options.load([video], plan=None), Path(out).suffix == ".html"
        models = choose_plans(loaded, options.plan, method=options.method, is_report=is_report)
        explain = partial(explain_video, models, start=start, seconds=seconds, repeats=repeats)
        with found.open() as source:
            explanation = explain(source, name=Path(found.name).name, tell=tell)
        tell(f"writing {out}")
        write(Path(out), explanation, width=width)
    print_notes(explanation.notes, stderr=True)
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
        others = BUDGETS if is_report else ()  # of the same sites
        varied = [tuple(Site(site.kind, site.block, ratio) for site in own) for ratio in others]
        plans = [own, *map(SelectionPlan, varied)]
    different = {str(plan): plan for plan in plans if plan}
    with warnings.catch_warnings():
        if plan is None:  # nobody asked for a budget at which some site keeps all
            warnings.filterwarnings("ignore", message="site .* keeps all of")
        selected = [with_plan(model, plan, method=method) for plan in different.values()]
    return [with_plan(model, "dense"), *selected]


def write(path: Path, explanation: Explanation, *, width: int | None) -> None:
    """Write the report, the overlays side by side, or the film strips one below the other."""
    dense, *plans = explanation.plans
    if path.suffix.lower() == ".html":  # its frames take the width of the window
        ordered = [dense, *sorted(plans, key=lambda plan: -plan.gmacs)]
        start = plans[0].plan if plans else None
        return write_report(path, replace(explanation, plans=ordered), start=start)
    plans = plans or [dense]
    if path.suffix.lower() in (".mp4", ".gif"):
        return write_overlay(path, explanation, plans, width=width or 480)
    strips = [draw_film_strip(explanation, plan, thumb_width=width or 150) for plan in plans]
    with writing(path) as unfinished:
        Image.fromarray(np.vstack([np.asarray(strip) for strip in strips])).save(unfinished)
