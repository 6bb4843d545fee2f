"""The command line: one function per subcommand, whose signature gives the arguments.

A subcommand's module is imported when it is called, so that `--help` and `--version` do not wait
for torch.
"""

import io
import signal
import sys
import threading
import warnings
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from importlib import import_module
from typing import Any, NamedTuple

import tokenselect
from tokenselect.extras import MissingExtraError

EXPECTED = (ValueError, OSError, MissingExtraError)  # a user's mistake, or the machine's


class Command(NamedTuple):
    """A subcommand: the module in `tokenselect.cli`, its function, and what it does."""

    module: str
    function: str
    summary: str

    def load(self) -> Callable[..., Any]:
        """Import the function."""
        return getattr(import_module(f"tokenselect.cli.{self.module}"), self.function)


COMMANDS = {
    "predict": Command("predict", "predict", "Classify videos, and show what selection saves."),
    "visualize": Command("visualize", "visualize", "Show what a model keeps of a video."),
    "live": Command("live", "live", "Classify what a camera sees, as it runs."),
    "init": Command("init", "init", "Look at a folder of videos and write a recipe for it."),
    "data check": Command("data", "check", "Read every video of a data set and report problems."),
    "train": Command("train", "run", "Train a model from a recipe."),
    "teach": Command("teach", "teach", "Add selectors to a trained model in minutes."),
    "evaluate": Command("evaluate", "evaluate", "Test a trained model on a data set."),
    "headroom": Command("headroom", "headroom", "Show what a selector could gain on a data set."),
    "compare": Command("compare", "compare", "Compare selection methods at equal cost."),
    "calibrate": Command("calibrate", "calibrate", "Find plans that meet a budget."),
    "profile": Command("profile", "profile", "Measure what a model costs under a plan."),
    "classify": Command("classify", "classify", "Classify many videos into a table."),
    "export": Command("export", "export", "Write a model as a file to deploy."),
    "serve": Command("serve", "serve", "Open the local web page and its JSON API."),
}


def main(arguments: list[str] | None = None) -> None:
    """Run `tokenselect`; a user's mistake ends with its message and exit code 2, no traceback."""
    is_own_process = arguments is None
    words = sys.argv[1:] if arguments is None else list(arguments)
    for stream in (sys.stdout, sys.stderr) if is_own_process else ():
        if isinstance(stream, io.TextIOWrapper):  # a closed one is None
            stream.reconfigure(errors="backslashreplace")  # for names that are not UTF-8
    with noting_interrupts() as interrupts:
        try:
            dispatch(words, is_own_process=is_own_process)
        except (Exception, KeyboardInterrupt) as error:
            if interrupts or isinstance(error, KeyboardInterrupt):
                print("tokenselect: interrupted", file=sys.stderr)
                raise SystemExit(130) from None
            if not isinstance(error, EXPECTED):
                raise
            print(f"tokenselect: {error}", file=sys.stderr)
            raise SystemExit(2) from error


@contextmanager
def noting_interrupts() -> Iterator[list[int]]:
    """List each Ctrl+C: compiled code may turn what it raises into an error of its own."""
    noted: list[int] = []

    def note(number: int, frame: Any) -> None:
        noted.append(number)
        signal.default_int_handler(number, frame)

    is_plain = signal.getsignal(signal.SIGINT) is signal.default_int_handler
    if not is_plain or threading.current_thread() is not threading.main_thread():
        yield noted
        return
    signal.signal(signal.SIGINT, note)
    try:
        yield noted
    finally:
        signal.signal(signal.SIGINT, signal.default_int_handler)


def dispatch(words: list[str], *, is_own_process: bool) -> None:
    """Find the command that the words begin with, and call it with the rest; else list them all."""
    if words[:1] == ["--version"]:
        return print(f"tokenselect {tokenselect.__version__}")
    name = next((name for name in COMMANDS if words[: len(name.split())] == name.split()), None)
    if name is None:
        width = max(map(len, COMMANDS))
        listed = "\n".join(f"  {name:{width}}  {COMMANDS[name].summary}" for name in COMMANDS)
        usage = "usage: tokenselect COMMAND …   (tokenselect COMMAND --help lists the options)"
        if not words or words[0] in ("-h", "--help"):
            print(f"{usage}\n\n{listed}\n\n  --version  Print the version.")
            raise SystemExit(0 if words else 2)
        begun = [name for name in COMMANDS if name.startswith(words[0])]
        hint = f"did you mean {begun[0]!r}?" if begun else f"the commands are:\n{listed}"
        raise ValueError(f"no command is called {' '.join(words[:2])!r}; {hint}")
    from tokenselect.cli.terminal import telling

    with telling("starting"):  # torch takes some seconds
        function, rest = COMMANDS[name].load(), words[len(name.split()) :]
        from tokenselect.cli.options import call
    if is_own_process:  # it may keep its memory from clip to clip, and needs no lines of code
        warnings.formatwarning = lambda message, *_, **__: f"Note: {message}\n"
        import_module("tokenselect.inference.memory").keep_freed_memory()
    if name == "train":  # a recipe's file first, then its keys as options
        return function(rest)
    call(function, rest, prog=f"tokenselect {name}")
