"""What a command is doing, on the error stream, with the seconds that have passed."""

from collections.abc import Callable, Iterator
from contextlib import contextmanager

from rich.console import Console
from rich.progress import Progress, SpinnerColumn, TextColumn, TimeElapsedColumn


@contextmanager
def telling(first: str) -> Iterator[Callable[[str], None]]:
    """Show a line that is gone at the end.

    Yields:
        A function that changes the line.
    """
    columns = (SpinnerColumn(), TextColumn("{task.description}", markup=False), TimeElapsedColumn())
    console = Console(stderr=True)
    is_seen = console.is_terminal  # a log file gets none of it
    with Progress(*columns, console=console, transient=True, disable=not is_seen) as progress:
        task = progress.add_task(first)
        yield lambda text: progress.update(task, description=text)
