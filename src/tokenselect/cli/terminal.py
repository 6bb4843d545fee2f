"""What commands show on a terminal: what they are doing, how far they are, and JSON."""

import json
from collections.abc import Callable, Iterator
from contextlib import contextmanager

from rich.console import Console
from rich.progress import (
    BarColumn,
    MofNCompleteColumn,
    Progress,
    SpinnerColumn,
    TextColumn,
    TimeElapsedColumn,
    TimeRemainingColumn,
)


@contextmanager
def telling(first: str) -> Iterator[Callable[[str], None]]:
    """Show a line on the error stream, with the seconds that pass; it is gone at the end.

    Yields:
        A function that changes the line.
    """
    columns = (SpinnerColumn(), TextColumn("{task.description}", markup=False), TimeElapsedColumn())
    console = Console(stderr=True)
    is_seen = console.is_terminal  # a log file gets none of it
    with Progress(*columns, console=console, transient=True, disable=not is_seen) as progress:
        task = progress.add_task(first)
        yield lambda text: progress.update(task, description=text)


@contextmanager
def counting(what: str, total: int | None = None) -> Iterator[Callable[..., None]]:
    """Show a bar on the error stream.

    Yields:
        A function that moves it by a count, 1 if not given, and may set the total.
    """
    columns = (TextColumn(what), BarColumn(), MofNCompleteColumn(), TimeRemainingColumn())
    with Progress(*columns, console=Console(stderr=True), transient=True) as progress:
        task = progress.add_task("", total=total)

        yield lambda count=1, total=None: progress.update(task, advance=count, total=total)


def print_json(values: object) -> None:
    """Print one JSON object."""
    print(json.dumps(values, indent=2, ensure_ascii=False))
