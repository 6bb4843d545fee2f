"""`tokenselect predict`: what is in a video, and what selection saves."""

import math
from collections.abc import Mapping
from dataclasses import asdict
from functools import partial
from typing import Any

from rich.console import Console
from rich.markup import escape
from rich.table import Column, Table
from torch import nn

from tokenselect.checkpoints import info_of, method_of, plan_of, remarks_of
from tokenselect.cli.options import TORCH, ModelOptions, RuntimeOptions
from tokenselect.cli.terminal import make_table, print_json, print_notes, telling
from tokenselect.data import parse_views
from tokenselect.data.sources import FoundVideo, find_videos
from tokenselect.inference import predict as inference
from tokenselect.inference.bulk import TOP
from tokenselect.inference.predict import Answer, Costs, answer_video, predict_video
from tokenselect.measure.cost import NOISY, are_told_apart

DETAILED = 3  # up to so many videos get a table each, of `TOP` classes


def predict(
    videos: list[str],
    *,
    options: ModelOptions,
    engine: RuntimeOptions = TORCH,
    views: str = "1x1",
    window: float = 10.0,
    step: float | None = None,
    whole: bool = False,
    seconds: float = 4.0,
    top: int | None = None,
    repeats: int = 3,
    json: bool = False,
) -> None:
    """Classify videos, and show what the model costs with and without selection.

    Args:
        videos: files, folders, patterns, http addresses, a camera's number, or sample (sample:0 to
            sample:7, or samples for all).
        options: which model.
        engine: what runs it.
        views: clips × crops of a video, or of each window, for example 5x1.
        window: longer videos are split into windows of this many seconds; 0 for never.
        step: seconds from one window to the next; half a window if not given.
        whole: also take each video as one long clip; the T site chooses among all its frames.
        seconds: how long to record from a camera.
        top: how many classes to show; by default 5, or 1 for many videos.
        repeats: timed forwards, with selection and without in turns; 0 for no timing.
        json: print JSON instead of tables.
    """
    if top is not None and top < 1:
        raise ValueError(f"top must be at least 1, got {top}")
    clips, crops = parse_views(views)
    with telling("loading the model") as tell:
        found = find_videos(videos, seconds=seconds, tell=tell)
        loaded = options.load(videos)
        open_run = engine.pick(loaded, tell=tell)
        look = partial(predict_video, loaded, clips=clips, crops=crops, window=window, step=step)
        look = partial(look, run=open_run(loaded))
        at_once = partial(inference.predict_whole, loaded, window=window or 10.0) if whole else None

        def answer(video: FoundVideo) -> Answer:
            told = partial(look, on_window=lambda n, of: tell(f"{video.name}: window {n} of {of}"))
            return answer_video(video, told, at_once)

        answers = [answer(video) for video in found]
        if len(answers) == 1 and answers[0].error is not None:
            raise ValueError(answers[0].error)
        tell("timing with selection and without")
        costs = inference.cost_of(loaded, repeats=repeats, open_run=open_run)
    if json:
        print_json(describe(loaded, answers, costs, views=views, top=top or TOP))
    else:
        print_tables(loaded, answers, costs, views=views, top=top)
    if any(answer.error is not None for answer in answers):
        raise SystemExit(1)


def describe(
    model: nn.Module, answers: list[Answer], costs: Costs, *, views: str, top: int
) -> dict[str, Any]:
    """Give all that was found as plain values."""
    info = info_of(model)
    return {
        "model": info.name,
        "plan": str(plan_of(model)),
        "method": method_of(model),
        "frames": info.clip_rule.frames,
        "size": list(info.clip_rule.size),
        "views": views,
        "device": str(next(model.parameters()).device),
        "notes": remarks_of(model),
        "cost_of_a_view": asdict(costs),
        "videos": [inference.answer_to_dict(answer, info.id2label, top=top) for answer in answers],
    }


def print_tables(
    model: nn.Module, answers: list[Answer], costs: Costs, *, views: str, top: int | None
) -> None:
    """Print the answers, then the costs."""
    console, id2label = Console(), info_of(model).id2label
    if len(answers) <= DETAILED:
        for answer in answers:
            print_answer(console, id2label, answer, top=top or TOP)
    else:
        print_list(console, id2label, answers, top=top or 1)
    if any(answer.whole is not None for answer in answers):
        gmacs = math.prod(parse_views(views)) * costs.gmacs
        console.print(whole_table(id2label, answers, gmacs=gmacs))
    console.print(cost_table(model, costs, views=views))
    print_notes(remarks_of(model))


def print_answer(
    console: Console, id2label: Mapping[int, str], answer: Answer, *, top: int
) -> None:
    """Print one video's classes, and its time line if it has several windows."""
    if answer.timeline is None:
        return console.print(f"[red]{escape(answer.error or '')}[/]")
    truth = f" (shows {escape(answer.video.label)})" if answer.video.label else ""
    console.print(f"[bold]{escape(answer.video.name)}[/]{truth}", soft_wrap=True)
    table = Table("label", Column("probability", justify="right"), "")
    for number, probability in answer.timeline.whole.top(top):
        bar = "█" * round(30 * probability)
        table.add_row(escape(id2label[number]), f"{probability:.1%}", f"[cyan]{bar}[/]")
    console.print(table)
    if len(answer.timeline.moments) == 1:
        return
    line = make_table("label", "from", "to", "probability", title="time line")
    for stretch in answer.timeline.stretches():
        ((number, probability),) = stretch.top(1)
        start, end = clock(stretch.start), clock(stretch.end)
        line.add_row(escape(id2label[number]), start, end, f"{probability:.1%}")
    console.print(line)


def print_list(
    console: Console, id2label: Mapping[int, str], answers: list[Answer], *, top: int
) -> None:
    """Print one row a video, with its time line if it has several windows."""
    table = Table(Column("video", overflow="fold"), "label", Column("probability", justify="right"))
    has_truth = any(answer.video.label is not None for answer in answers)
    is_long = any(answer.timeline and len(answer.timeline.moments) > 1 for answer in answers)
    for name in ["shows"] * has_truth + ["time line"] * is_long:
        table.add_column(name)
    for answer in answers:
        name = escape(answer.video.name)
        if answer.timeline is None:
            table.add_row(name, f"[red]{escape(answer.error or '')}[/]", "")
            continue
        best = answer.timeline.whole.top(top)
        stretches = answer.timeline.stretches() if len(answer.timeline.moments) > 1 else []
        line = [
            f"{clock(part.start)}–{clock(part.end)} {escape(id2label[part.top(1)[0][0]])}"
            for part in stretches
        ]
        table.add_row(
            name,
            "\n".join(escape(id2label[number]) for number, _ in best),
            "\n".join(f"{probability:.1%}" for _, probability in best),
            *[escape(answer.video.label or "")] * has_truth,
            *["\n".join(line)] * is_long,
        )
    console.print(table)


def whole_table(id2label: Mapping[int, str], answers: list[Answer], *, gmacs: float) -> Table:
    """Set videos read in windows, of `gmacs` each, beside the same ones read as one clip."""
    table = make_table("video", "read as", "label", "probability", "GMACs", texts=3)
    for answer in answers:
        if answer.whole is None or answer.timeline is None:
            continue
        count, name = len(answer.timeline.moments), escape(answer.video.name)
        one = f"one clip of {answer.whole.frames} frames, {answer.whole.plan}"
        for read_as, moment, cost in (
            (f"{count} windows", answer.timeline.whole, count * gmacs),
            (one, answer.whole.moment, answer.whole.gmacs),
        ):
            ((number, probability),) = moment.top(1)
            figures = f"{probability:.1%}", f"{cost:.4g}"
            table.add_row(name, read_as, escape(id2label[number]), *figures)
    return table


def cost_table(model: nn.Module, costs: Costs, *, views: str) -> Table:
    """Set the costs of one view and of all views of a window side by side."""
    count, info, plan = math.prod(parse_views(views)), info_of(model), plan_of(model)
    height, width = info.clip_rule.size
    title = f"{info.name}, {info.clip_rule.frames}×{height}×{width}, {views} views"
    columns = ["", f"plan {plan}", "dense", "saved"] if plan else ["", "dense"]
    table = make_table(*columns, title=title)
    gmacs = [f"{count * costs.gmacs:.4g}", f"{count * costs.gmacs_dense:.4g}"]
    rows = [("GMACs", *gmacs, f"{1 - costs.gmacs / costs.gmacs_dense:.0%}")]
    selected, dense = costs.milliseconds, costs.milliseconds_dense
    if selected is not None and dense is not None:
        saved = f"{1 - selected / dense:.0%}" if are_told_apart(selected, dense) else "noisy"
        rows.append(("ms", str(selected.scaled(count)), str(dense.scaled(count)), saved))
    for row in rows:
        table.add_row(*row[: len(columns)])
    if plan and any(row[-1] == "noisy" for row in rows):
        table.caption = NOISY
    return table


def clock(seconds: float) -> str:
    """Write 75.2 seconds as 1:15.2."""
    minutes, rest = divmod(seconds, 60)
    return f"{int(minutes)}:{rest:04.1f}"
