"""The command line: one function a subcommand, arguments from its signature."""

import inspect
import sys
from typing import Any

from jsonargparse import auto_cli

from tokenselect.cli.data import check
from tokenselect.cli.profile import profile

COMMANDS: dict[str, Any] = {
    "data": {"_help": "Look at a data set before training on it.", "check": check},
    "profile": profile,
}


def main(arguments: list[str] | None = None) -> None:
    """Run `tokenselect`; a wrong value ends with its message and exit code 2, not a traceback."""
    arguments = spell_flags(sys.argv[1:] if arguments is None else arguments)
    try:
        auto_cli(COMMANDS, args=arguments, prog="tokenselect")
    except (ValueError, TypeError, OSError) as error:
        print(f"tokenselect: {error}", file=sys.stderr)
        raise SystemExit(2) from error


def spell_flags(arguments: list[str]) -> list[str]:
    """Write a bare `--json` as `--json=true`, for every yes-or-no option of the command."""
    command: Any = COMMANDS
    for word in arguments:
        if isinstance(command, dict) and not word.startswith("-"):
            command = command.get(word)
    if not callable(command):
        return arguments
    parameters = inspect.signature(command).parameters.values()
    flags = {f"--{p.name}" for p in parameters if p.annotation is bool}
    return [f"{word}=true" if word in flags else word for word in arguments]
