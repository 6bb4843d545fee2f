"""`tokenselect live`: what a camera shows, answered while it runs."""

import json as json_format
import time

from rich.console import Console
from rich.live import Live
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
    """Classify a camera's last seconds again and again: label, kept frames and region, saving.

    Uses the newest frames: if the model is slower than the camera, it skips some, and says so.

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
    title = f"{stream.name}: {info_of(model).name}, {method_of(model)}"
    with stream, Live(console=console, auto_refresh=False, transient=True) as screen:
        try:
            for look in watch(watcher, stream):
                count += 1
                rate = count / (time.monotonic() - start)
                if json:
                    told = {**look.to_dict(top=top), "skipped": stream.skipped}
                    print(json_format.dumps(told, ensure_ascii=False), flush=True)
                elif console.is_terminal:
                    lines = write_lines(look, stream, rate=rate, top=top)
                    screen.update(Text("\n".join([title, *lines])), refresh=True)
                else:
                    print("  ".join(write_lines(look, stream, rate=rate, top=1)), flush=True)
                if duration is not None and time.monotonic() - start >= duration:
                    break
        except KeyboardInterrupt:  # how it is meant to end
            pass
    if look is not None and not json:
        seconds = time.monotonic() - start
        print(
            f"{count} clips in {seconds:.1f} s ({count / seconds:.1f} per second), "
            f"{look.plan.plan} saves {look.saved:.0%} of the multiply-adds; "
            f"{stream.skipped} of {stream.arrived} frames skipped"
        )


def write_lines(look: Look, stream: Stream, *, rate: float, top: int) -> list[str]:
    """Write the answer, the frames that were kept, and the figures."""
    names, kept = look.explanation.class_names, look.explanation.kept(look.plan)
    frames = "".join("■" if is_kept else "·" for is_kept in kept.frames)
    share = kept.share / max(float(kept.frames.float().mean()), 1e-9)
    return [
        *(f"{names[number]} {probability:.1%}" for number, probability in look.plan.top(top)),
        f"{frames} {share:.0%} of each kept frame",
        f"{rate:.1f} clips/s, {look.plan.plan} saves {look.saved:.0%}, "
        f"{stream.skipped} of {stream.arrived} frames skipped",
        *look.explanation.notes,
    ]
