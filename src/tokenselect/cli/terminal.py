"""What commands show on a terminal: what they are doing, how far they are, and JSON."""

import json
from collections.abc import Callable, Iterable, Iterator
from contextlib import contextmanager
from pathlib import Path

from rich import progress
from rich.console import Console
from rich.markup import escape
from rich.table import Table


@contextmanager
def telling(first: str) -> Iterator[Callable[[str], None]]:
    """Show a line on the error stream, with the seconds that pass; it is gone at the end.

    Yields:
        A function that changes the line.
    """
    text = progress.TextColumn("{task.description}", markup=False)
    columns = progress.SpinnerColumn(), text, progress.TimeElapsedColumn()
    console = Console(stderr=True)
    is_seen = console.is_terminal  # a log file gets none of it
    with progress.Progress(*columns, console=console, transient=True, disable=not is_seen) as line:
        task = line.add_task(first)
        yield lambda text: line.update(task, description=text)


@contextmanager
def counting(what: str, total: int | None = None) -> Iterator[Callable[..., None]]:
    """Show a bar on the error stream.

    Yields:
        A function that moves it by a count, 1 if not given, and may set the total.
    """
    bar = progress.BarColumn(), progress.MofNCompleteColumn()
    times = progress.TimeElapsedColumn(), progress.TimeRemainingColumn()
    columns = progress.SpinnerColumn(), progress.TextColumn(what), *bar, *times
    with progress.Progress(*columns, console=Console(stderr=True), transient=True) as line:
        task = line.add_task("", total=total)
        yield lambda count=1, total=None: line.update(task, advance=count, total=total)


def make_table(*columns: str, title: str | None = None, texts: int = 1) -> Table:
    """Make a table: the first columns are texts, never cut, the others figures on the right."""
    table = Table(title=title, title_justify="left", min_width=len(title or ""))
    for number, column in enumerate(columns):
        side, overflow = ("left", "fold") if number < texts else ("right", "ellipsis")
        table.add_column(column, justify=side, overflow=overflow)  # type: ignore[arg-type]
    return table


def check_folder(*files: str | None) -> None:
    """Refuse files that cannot be written, before any work."""
    for file in filter(None, files):
        if not Path(file).resolve().parent.is_dir():
            raise FileNotFoundError(f"the folder of {file} does not exist")


def print_notes(notes: Iterable[str], *, stderr: bool = False) -> None:
    """Print what the reader must know."""
    for note in notes:
        Console(stderr=stderr).print(f"[yellow]Note:[/] {escape(note)}", soft_wrap=True)


def print_json(values: object) -> None:
    """Print one JSON object."""
    print(json.dumps(values, indent=2, ensure_ascii=False))
