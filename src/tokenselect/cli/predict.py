"""`tokenselect predict`: what is in a video, and what selection saves."""

import json
from dataclasses import asdict
from typing import Any

import torch
from rich.console import Console
from rich.markup import escape
from rich.table import Table

from tokenselect.checkpoints.model import LoadedModel, open_model
from tokenselect.cli.progress import telling
from tokenselect.data import parse_views
from tokenselect.data.sources import find_videos
from tokenselect.inference.predict import Answer, Costs, answer_to_dict, answer_videos, cost_of

DETAILED = 3  # up to so many videos get a table each


def predict(
    videos: list[str],
    model: str | None = None,
    checkpoint: str | None = None,
    weights: str | None = None,
    plan: str | None = None,
    method: str | None = None,
    class_names: str | None = None,
    views: str = "1x1",
    window: float = 10.0,
    step: float | None = None,
    seconds: float = 4.0,
    top: int = 5,
    repeats: int = 3,
    device: str | None = None,
    json: bool = False,
) -> None:
    """Say what is in videos, with the cost of the model with its selection and without.

    Args:
        videos: files, folders, patterns, http addresses, a camera's number, or sample (sample:0 to
            sample:7, or samples for all).
        model: name of a model, for example mvit_b16; its weights are random unless given.
        checkpoint: run folder or .safetensors file of a trained model; without model and
            checkpoint, the small one of the package.
        weights: of the named model: a file of any known layout, or public ones by name, for
            example kinetics400.
        plan: what to keep, for example T0_0.6-S4_0.9, in place of the checkpoint's own.
        method: how to select, for example motion, in place of the checkpoint's own.
        class_names: file with the names of the classes, if the checkpoint does not know them.
        views: clips × crops of a video, or of each window, for example 5x1.
        window: a longer video is read in windows of so many seconds; 0 for never.
        step: seconds from one window to the next; half a window if not given.
        seconds: to record of a camera.
        top: how many classes to show.
        repeats: timed forwards, with selection and without in turns; 0 for no timing.
        device: for example cpu or cuda; the accelerator if there is one and none is given.
        json: print JSON instead of tables.
    """
    if top < 1:
        raise ValueError(f"top must be at least 1, got {top}")
    clips, crops = parse_views(views)
    with telling("loading the model") as tell:
        loaded = open_model(
            model,
            checkpoint=checkpoint,
            weights=weights,
            plan=plan,
            method=method,
            class_names=class_names,
            device=device or best_device(),
        )
        found = find_videos(videos, seconds=seconds, tell=tell)
        answers = answer_videos(
            loaded,
            found,
            clips=clips,
            crops=crops,
            window=window,
            step=step,
            on_window=lambda video, done, of: tell(f"{video.name}: window {done} of {of}"),
        )
        if len(answers) == 1 and answers[0].error is not None:
            raise ValueError(answers[0].error)
        tell("timing with selection and without")
        costs = cost_of(loaded, repeats=repeats)
    if json:
        print_json(loaded, answers, costs, views=views, top=top)
    else:
        print_tables(loaded, answers, costs, views=views, top=top)
    if any(answer.error is not None for answer in answers):
        raise SystemExit(1)


def best_device() -> str:
    """Name the accelerator if there is one."""
    return "cuda" if torch.cuda.is_available() else "cpu"


def print_json(
    loaded: LoadedModel, answers: list[Answer], costs: Costs, *, views: str, top: int
) -> None:
    """Print one JSON object."""
    told: dict[str, Any] = {
        "model": loaded.name,
        "plan": str(loaded.plan),
        "method": loaded.method,
        "frames": loaded.rule.frames,
        "size": list(loaded.rule.size),
        "views": views,
        "device": str(next(loaded.model.parameters()).device),
        "notes": loaded.remarks,
        "cost_of_a_view": asdict(costs),
        "videos": [answer_to_dict(answer, loaded, top=top) for answer in answers],
    }
    print(json.dumps(told, indent=2, ensure_ascii=False))


def print_tables(
    loaded: LoadedModel, answers: list[Answer], costs: Costs, *, views: str, top: int
) -> None:
    """Print the answers, then the costs."""
    console = Console()
    if len(answers) <= DETAILED:
        for answer in answers:
            print_answer(console, loaded, answer, top=top)
    else:
        print_list(console, loaded, answers)
    console.print(cost_table(loaded, costs, views=views))
    for note in loaded.remarks:
        console.print(f"[yellow]Note:[/] {escape(note)}")


def print_answer(console: Console, loaded: LoadedModel, answer: Answer, *, top: int) -> None:
    """Print one video's classes, and its time line if it has several windows."""
    name = escape(answer.video.name)
    if answer.timeline is None:
        console.print(f"[red]{escape(answer.error or '')}[/]")
        return
    truth = f" (shows {escape(answer.video.label)})" if answer.video.label else ""
    console.print(f"[bold]{name}[/]{truth}", soft_wrap=True)
    table = Table("label", "probability", "")
    table.columns[1].justify = "right"
    for number, probability in answer.timeline.whole.top(top):
        bar = "█" * round(30 * probability)
        table.add_row(escape(loaded.class_names[number]), f"{probability:.1%}", f"[cyan]{bar}[/]")
    console.print(table)
    if len(answer.timeline.moments) == 1:
        return
    line = Table("from", "to", "label", "probability", title="time line", title_justify="left")
    for column in (0, 1, 3):
        line.columns[column].justify = "right"
    for stretch in answer.timeline.stretches():
        ((number, probability),) = stretch.top(1)
        label = escape(loaded.class_names[number])
        line.add_row(clock(stretch.start), clock(stretch.end), label, f"{probability:.1%}")
    console.print(line)


def print_list(console: Console, loaded: LoadedModel, answers: list[Answer]) -> None:
    """Print one row a video."""
    table = Table("video", "label", "probability")
    table.columns[2].justify = "right"
    if any(answer.video.label is not None for answer in answers):
        table.add_column("shows")
    for answer in answers:
        name = escape(answer.video.name)
        if answer.timeline is None:
            table.add_row(name, f"[red]{escape(answer.error or '')}[/]", "")
            continue
        ((number, probability),) = answer.timeline.whole.top(1)
        row = [name, escape(loaded.class_names[number]), f"{probability:.1%}"]
        table.add_row(*row, *([escape(answer.video.label)] if answer.video.label else []))
    console.print(table)


def cost_table(loaded: LoadedModel, costs: Costs, *, views: str) -> Table:
    """Set the costs of one view and of all views of a window side by side."""
    clips, crops = parse_views(views)
    count = clips * crops
    height, width = loaded.rule.size
    title = f"{loaded.name}, {loaded.rule.frames}×{height}×{width}, {views} views"
    columns = ["", f"plan {loaded.plan}", "dense", "saved"] if loaded.plan else ["", "dense"]
    table = Table(*columns, title=title, title_justify="left")
    for column in table.columns[1:]:
        column.justify = "right"
    rows = [("GMACs", costs.gmacs, costs.gmacs_dense)]
    if costs.milliseconds is not None and costs.milliseconds_dense is not None:
        rows.append(("ms", costs.milliseconds, costs.milliseconds_dense))
    for name, selected, dense in rows:
        row = [f"{count * selected:.4g}", f"{count * dense:.4g}", f"{1 - selected / dense:.0%}"]
        table.add_row(name, *row[: len(columns) - 1])
    return table


def clock(seconds: float) -> str:
    """Write 75.2 seconds as 1:15.2."""
    minutes, rest = divmod(seconds, 60)
    return f"{int(minutes)}:{rest:04.1f}"
