"""A whole comparison: run its cells, gather rows, write them as Markdown, figure and HTML page."""

import base64
import importlib.util
import json
import math
import statistics
from collections.abc import Callable, Mapping, Sequence
from dataclasses import asdict, dataclass, field, replace
from functools import partial
from html import escape
from pathlib import Path
from typing import Any

import torch

from tokenselect.comparison import planning
from tokenselect.comparison.planning import DENSE, ORACLE, START, Cells, Comparison, Line
from tokenselect.comparison.trials import SKIPPED, Trial, prepare_test, run_trials, write_json
from tokenselect.locking import write_whole, writing
from tokenselect.measure.cost import Timing, are_told_apart, be_silent, measure_latency
from tokenselect.measure.significance import Paired, compare_answers
from tokenselect.selectors.build import has_parameters
from tokenselect.training.distributed import choose_device

RIVALS = ("random", "uniform", "static")  # what a learned selection must beat


@dataclass(frozen=True, kw_only=True)
class ComparisonRow:
    """One line of the table, over its seeds."""

    plan: str  # what is kept in the test
    method: str  # how it is chosen
    variant: str = ""  # of the recipe
    seeds: list[int] = field(default_factory=list)  # those with a result
    top1: list[float] = field(default_factory=list)  # one per seed
    gmacs: float = float("nan")  # billions of multiply-adds per view
    # median of one clip alone, timed in turns with all others; None if not timed
    milliseconds: Timing | None = None
    # by site, mean over seeds: the share of what matters that the site keeps
    recall: dict[str, float] = field(default_factory=dict)
    # one text per seed, one character per clip: 1 right, 0 wrong, `SKIPPED`
    answers: list[str] = field(default_factory=list)
    against: dict[str, Paired] = field(default_factory=dict)  # rival's method to the paired test
    minutes: float = 0.0  # of the training, mean over seeds
    errors: list[str] = field(default_factory=list)  # of the cells without a result
    refusal: str | None = None  # why the method cannot be at a site of the plan, if it cannot

    @property
    def mean(self) -> float:
        """Mean top-1; NaN without a result."""
        return statistics.mean(self.top1) if self.top1 else float("nan")

    @property
    def deviation(self) -> float | None:
        """Standard deviation of top-1 over the seeds; None with fewer than two."""
        return statistics.stdev(self.top1) if len(self.top1) > 1 else None

    @property
    def name(self) -> str:
        """Method and variant."""
        return f"{self.method} ({self.variant})" if self.variant else self.method

    def to_dict(self) -> dict[str, Any]:
        """Give plain values for JSON."""
        return {**asdict(self), "mean": self.mean, "deviation": self.deviation}


Rows = Sequence[ComparisonRow]


@dataclass(frozen=True)
class ComparisonResult:
    """What a comparison found."""

    rows: list[ComparisonRow]  # of the table
    warnings: list[str]  # where learning is no better than not
    files: list[Path]  # that were written


def run_comparison(
    wanted: Comparison,
    *,
    title: str,
    command: str = "",
    workers: int = 2,
    repeats: int = 15,
    on_start: Callable[[Sequence[Trial]], object] = be_silent,
    on_done: Callable[[Trial, str | None], object] = be_silent,
) -> ComparisonResult:
    """Run what is not done yet, and write everything anew.

    Args:
        command: what makes the table again.
        workers: processes at a time; 0 runs all in this one.
        repeats: rounds of the timing; 0 times nothing.
        on_start: gets all trials before the first one runs.
        on_done: gets each trial when it ends, and what went wrong, if anything.
    """
    folder, recipe = wanted.folder, wanted.recipe
    trials, cells = planning.plan_trials(wanted)
    planning.refuse_other_videos(recipe.data, folder)
    on_start(trials)
    errors = run_trials(trials, folder=folder, workers=workers, on_done=on_done)
    lines = [Line(DENSE, START), *wanted.dense_lines, *wanted.lines]
    rows = [gather(line, wanted.seeds, cells, errors) for line in lines]
    rows = [with_rivals(row, rows) for row in rows]
    if repeats:
        rows = time_rows(rows, cells, repeats=repeats)
    warnings = [*find_warnings(rows), *find_noise(rows)]
    told: dict[str, Any] = {"title": title, "command": command, "warnings": warnings}
    files = [folder / f"comparison.{suffix}" for suffix in ("json", "md", "png", "html")]
    values, text, figure, page = files
    plain = {"recipe": recipe.to_dict(), "rows": [row.to_dict() for row in rows]}
    write_json(values, {**told, **plain})
    write_whole(text, write_markdown(rows, **told))
    if importlib.util.find_spec("matplotlib") is None:
        files.remove(figure)
    else:
        with writing(figure) as unfinished:
            draw_figure(rows, unfinished, title=title)
    write_whole(page, write_html(rows, **told, figure=figure if figure in files else None))
    return ComparisonResult(rows, warnings, files)


@torch.inference_mode()
def time_rows(rows: Rows, cells: Cells, *, repeats: int) -> list[ComparisonRow]:
    """Fill in the milliseconds of a clip alone; not for the oracle, who is told what to keep."""
    device = choose_device()
    tasks: dict[str, Callable[[], object]] = {}
    for number, row in enumerate(rows):
        if row.seeds and row.method != ORACLE:
            line = Line(row.plan, row.method, row.variant)
            model, clips = prepare_test(cells[line.title, row.seeds[0]], row.plan)
            video, _ = clips.collate([clips.dataset[0]])
            first = (video if video.ndim == 5 else video[:, 0]).to(device)  # one view
            tasks[str(number)] = partial(model.to(device), first)
    seconds = measure_latency(tasks, repeats=repeats)
    times = {int(number): time.scaled(1000) for number, time in seconds.items()}
    return [replace(row, milliseconds=times.get(number)) for number, row in enumerate(rows)]


def gather(
    line: Line, seeds: Sequence[int], cells: Cells, errors: Mapping[str, str]
) -> ComparisonRow:
    """Read the results of one line."""
    row = ComparisonRow(plan=line.plan, method=line.method, variant=line.variant)
    if refusal := cells[line.title, seeds[0]].refusal:
        return replace(row, refusal=refusal)
    found: list[dict[str, Any]] = []
    for seed in seeds:
        trial = cells[line.title, seed]
        path = Path(trial.results[line.plan])
        if path.is_file():
            found.append(json.loads(path.read_text()))
            row.seeds.append(seed)
        else:
            row.errors.append(f"seed {seed}: {errors.get(trial.key, 'no result')}")
    if not found:
        return row
    sites = found[0]["recall"]
    return replace(
        row,
        top1=[result["top1"] for result in found],
        gmacs=found[0]["gmacs"],
        recall={site: statistics.mean(each["recall"][site] for each in found) for site in sites},
        answers=[result["correct"] for result in found],
        minutes=statistics.mean(result["minutes"] for result in found),
    )


def with_rivals(row: ComparisonRow, rows: Rows) -> ComparisonRow:
    """Compare a line with its rivals at the same plan, of its own variant where there is one."""
    against: dict[str, Paired] = {}
    for method in RIVALS:
        rivals = [r for r in rows if r.method == method and r.plan == row.plan and r is not row]
        rivals.sort(key=lambda rival: (rival.variant != row.variant, rival.variant))
        if not rivals or row.method == method:
            continue
        ours, theirs = (dict(zip(r.seeds, r.answers, strict=True)) for r in (row, rivals[0]))
        both = sorted(ours.keys() & theirs.keys())
        if both:  # on the clips that every text has an answer for
            texts = [texts[seed] for texts in (ours, theirs) for seed in both]
            clips = [clip for clip in zip(*texts, strict=True) if SKIPPED not in clip]
            texts = ["".join(answers) for answers in zip(*clips, strict=True)]
            against[method] = compare_answers(texts[: len(both)], texts[len(both) :])
    return replace(row, against=against)


def find_warnings(rows: Rows) -> list[str]:
    """Say where a learned selection is no better than one that learns or looks at nothing."""
    return [
        f"{row.plan}: {row.name} is not significantly better than {method} "
        f"({100 * paired.difference:+.1f} points, p = {paired.p:.2g}, "
        f"{paired.num_clips} clips × {paired.num_seeds} seeds)"
        for row in rows
        if has_parameters(row.method) and row.method != "static"
        for method, paired in row.against.items()
        if not paired.is_better
    ]


def find_noise(rows: Rows) -> list[str]:
    """Say whose time cannot be told apart from that of the dense model."""
    times = [(row, row.milliseconds) for row in rows if row.milliseconds is not None]
    dense = [time for row, time in times if row.method == START]
    others = [(row, time) for row, time in times if row.plan != DENSE and dense]
    noisy = [f"{row.plan} {row.name}" for row, time in others if not are_told_apart(time, dense[0])]
    told = f"noisy: the ms of {', '.join(noisy)} cannot be told apart from the dense model's"
    return [told] if noisy else []


FIRST_COLUMNS = ("plan", "method", "top-1 %", "GMACs", "ms", "recall %")


def column_names(rows: Rows) -> list[str]:
    """Name the columns: one more for each rival that is in the table."""
    met = [method for method in RIVALS if any(method in row.against for row in rows)]
    return [*FIRST_COLUMNS, *(f"− {method}" for method in met)]


def row_texts(row: ComparisonRow, columns: Sequence[str]) -> list[str]:
    """Give the text of each column."""
    spread = "" if row.deviation is None else f" ± {100 * row.deviation:.1f}"
    failed = f" ({len(row.errors)} failed)" if row.errors else ""
    accuracy = f"{100 * row.mean:.1f}{spread}{failed}" if row.top1 else "failed"
    leads = {  # points, half of their 95 % interval, and p
        f"− {rival}": f"{100 * x.difference:+.1f} ± {50 * (x.high - x.low):.1f} (p {x.p:.1g})"
        for rival, x in row.against.items()
    }
    return [
        row.plan,
        row.name,
        "N/A" if row.refusal else accuracy,
        "–" if math.isnan(row.gmacs) else f"{row.gmacs:.4g}",
        "–" if row.milliseconds is None else str(row.milliseconds),
        ", ".join(f"{site} {100 * share:.0f}" for site, share in row.recall.items()) or "–",
        *(leads.get(column, "–") for column in columns[len(FIRST_COLUMNS) :]),
    ]


def describe_tested(rows: Rows) -> str:
    """Say what was tested, and how many clips were not."""
    seeds = sorted({seed for row in rows for seed in row.seeds})
    texts = [text for row in rows for text in row.answers]
    skipped = max((text.count(SKIPPED) for text in texts), default=0)
    clips = max(map(len, texts), default=0) - skipped
    more = f"; {skipped} more were skipped: they have no label or cannot be read" if skipped else ""
    return f"Seeds {', '.join(map(str, seeds))}; {clips} test clips{more}."


def list_gaps(rows: Rows) -> dict[str, list[str]]:
    """Say below a table which cells have no result, and why."""
    return {
        "Failed cells": [f"{row.plan} {row.name}, {error}" for row in rows for error in row.errors],
        "Not applicable": [f"{row.plan} {row.name}: {row.refusal}" for row in rows if row.refusal],
    }


def write_markdown(rows: Rows, *, title: str, command: str, warnings: Sequence[str]) -> str:
    """Write the table with the command that made it, errors and warnings."""
    columns = column_names(rows)
    table = [columns, ["---"] * len(columns), *(row_texts(row, columns) for row in rows)]
    lines = [f"# {title}", "", f"`{command}`", "", *(f"| {' | '.join(row)} |" for row in table)]
    lines += ["", describe_tested(rows)]
    for heading, texts in {"Warnings": warnings, **list_gaps(rows)}.items():
        if texts:
            lines += ["", f"{heading}:", "", *(f"- {text}" for text in texts)]
    return "\n".join(lines) + "\n"


MARKERS = {DENSE: "D", START: "*", ORACLE: "^"}  # of the lines that are no method


def draw_figure(rows: Rows, path: Path, *, title: str) -> None:
    """Draw top-1 against GMACs as a PNG; bars are standard deviations over the seeds."""
    from matplotlib.backends.backend_agg import FigureCanvasAgg
    from matplotlib.figure import Figure

    figure = Figure(figsize=(7.2, 4.8), dpi=150, layout="constrained")
    FigureCanvasAgg(figure)
    axes = figure.add_subplot()
    lines: dict[str, list[ComparisonRow]] = {}
    for row in sorted(rows, key=lambda row: row.gmacs):
        if row.top1:
            lines.setdefault(row.name, []).append(row)
    for name in dict.fromkeys(row.name for row in rows if row.top1):
        points, marker = lines[name], MARKERS.get(lines[name][0].method)
        method = {"marker": "o", "linestyle": "-", "markersize": 4.5}
        other = {"marker": marker, "linestyle": "--", "markersize": 7, "color": "black"}
        style: dict[str, Any] = {**(other if marker else method), "linewidth": 1.4, "capsize": 2}
        gmacs, means = [row.gmacs for row in points], [100 * row.mean for row in points]
        deviations = [100 * (row.deviation or 0.0) for row in points]
        axes.errorbar(gmacs, means, yerr=deviations, label=name, **style)
    axes.set(xlabel="GMACs per view", ylabel="top-1 %", title=title)
    axes.grid(alpha=0.25)
    if lines:
        axes.legend(fontsize=8, loc="best")
    figure.savefig(path)


STYLE = (Path(__file__).parents[1] / "assets" / "comparison.css").read_text(encoding="utf-8")
NOTES = (
    "top-1: mean ± standard deviation over the seeds. recall: share of what matters that a site "
    "keeps, if the truth is known. − random: points above random selection at the same plan, "
    "half of their 95 % interval over the clips, and p of the paired test; others likewise."
)


def write_html(
    rows: Rows, *, title: str, command: str, warnings: Sequence[str], figure: Path | None
) -> str:
    """Write one HTML page that needs no other file; `figure` is a PNG to put into it."""
    parts = [f"<h1>{escape(title)}</h1>", f"<p><code>{escape(command)}</code></p>"]
    if figure is not None:
        data = base64.b64encode(figure.read_bytes()).decode()
        parts.append(f'<p><img alt="top-1 against GMACs" src="data:image/png;base64,{data}"></p>')
    columns = column_names(rows)
    parts.append("<table><tr>" + "".join(f"<th>{escape(c)}</th>" for c in columns) + "</tr>")
    for above, row in zip(["", *(row.plan for row in rows)], rows, strict=False):
        cells = "".join(f"<td>{escape(text)}</td>" for text in row_texts(row, columns))
        parts.append(f"<tr{' class=plan' if row.plan != above else ''}>{cells}</tr>")
    parts.append(f"</table><p>{escape(describe_tested(rows))} {escape(NOTES)}</p>")
    gaps = [f"{heading}: {text}" for heading, found in list_gaps(rows).items() for text in found]
    parts += [f'<p class="warning">{escape(text)}</p>' for text in (*warnings, *gaps)]
    head = '<meta charset="utf-8"><meta name="viewport" content="width=device-width">'
    head += f"<title>{escape(title)}</title><style>{STYLE}</style>"
    return f"<!doctype html><html><head>{head}</head><body>{''.join(parts)}</body></html>\n"
