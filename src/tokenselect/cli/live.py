"""`tokenselect live`: what a camera shows, answered while it runs."""

import json as json_format
import time

from rich.console import Console, Group
from rich.live import Live
from rich.markup import escape
from rich.table import Table
from rich.text import Text

from tokenselect.checkpoints import info_of, method_of
from tokenselect.cli.options import ModelOptions
from tokenselect.cli.terminal import telling
from tokenselect.inference.live import Look, Stream, Watcher, watch


def live(
    source: str,
    *,
    options: ModelOptions,
    duration: float | None = None,
    top: int = 3,
    json: bool = False,
) -> None:
    """Answer a camera's last seconds again and again: label, kept frames and region, saving.

    The newest frames win: where the model is slower than the camera, frames are skipped, and said.

    Args:
        source: number of a camera, or a file that is played in its place.
        options: which model.
        duration: seconds after which to stop; the end of the file, or Ctrl+C, if not given.
        top: how many classes to show.
        json: print one JSON object per answer instead.
    """
    console = Console()
    with telling("loading the model"):
        stream = Stream(source)
        watcher = Watcher(model := options.load([source]))
    start, count, look = time.monotonic(), 0, None
    is_drawn = console.is_terminal and not json
    title = f"{info_of(model).name}, {method_of(model)}"
    with stream, Live(console=console, auto_refresh=False, transient=True) as screen:
        try:
            for look in watch(watcher, stream):
                count += 1
                rate = count / (time.monotonic() - start)
                if json:
                    told = {**look.to_dict(top=top), "skipped": stream.skipped}
                    print(json_format.dumps(told, ensure_ascii=False), flush=True)
                elif is_drawn:
                    screen.update(draw(look, stream, title=title, rate=rate, top=top), refresh=True)
                else:
                    print(write_line(look, stream, rate=rate), flush=True)
                if duration is not None and time.monotonic() - start >= duration:
                    break
        except KeyboardInterrupt:  # how it is meant to end
            pass
    if look is not None and not json:
        seconds = time.monotonic() - start
        print(
            f"{count} clips in {seconds:.1f} s ({count / seconds:.1f} a second), {look.plan.plan} "
            f"saves {look.saved:.0%} of the multiply-adds; {describe_skipped(stream)}"
        )


def draw(look: Look, stream: Stream, *, title: str, rate: float, top: int) -> Group:
    """Draw the answer, the frames that were kept, and the costs."""
    table = Table("label", "probability", "", title=escape(f"{stream.name}: {title}"))
    for number, probability in look.plan.top(top):
        bar = "█" * round(30 * probability)
        label = escape(look.explanation.class_names[number])
        table.add_row(label, f"{probability:.1%}", f"[cyan]{bar}[/]")
    lines = [write_kept(look), write_figures(look, stream, rate=rate), *look.explanation.notes]
    return Group(table, *(Text(line) for line in lines))


def write_line(look: Look, stream: Stream, *, rate: float) -> str:
    """Write an answer in one line, for a log."""
    ((number, probability),) = look.plan.top(1)
    label = look.explanation.class_names[number]
    return "  ".join(
        [f"{label} {probability:.1%}", write_kept(look), write_figures(look, stream, rate=rate)]
    )


def write_kept(look: Look) -> str:
    """Mark the frames that were kept, and say how much of a kept frame is."""
    kept = look.explanation.kept(look.plan)
    frames = "".join("■" if is_kept else "·" for is_kept in kept.frames)
    share = float(kept.mask[kept.frames].float().mean()) if bool(kept.frames.any()) else 0.0
    return f"{frames} {share:.0%} of each kept frame"


def write_figures(look: Look, stream: Stream, *, rate: float) -> str:
    """Write clips a second, the saving and the frames that were skipped."""
    saved = f"{look.plan.plan} saves {look.saved:.0%}"
    return f"{rate:.1f} clips/s  {saved}  {describe_skipped(stream)}"


def describe_skipped(stream: Stream) -> str:
    """Say how many frames no clip has shown."""
    return f"{stream.skipped} of {stream.arrived} frames skipped"
