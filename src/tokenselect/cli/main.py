"""The command line: one function a subcommand, arguments from its signature."""

import inspect
import json
import sys
from typing import Any

from jsonargparse import auto_cli

from tokenselect.cli.calibrate import calibrate
from tokenselect.cli.classify import classify
from tokenselect.cli.compare import compare
from tokenselect.cli.data import check
from tokenselect.cli.evaluate import evaluate
from tokenselect.cli.export import export
from tokenselect.cli.predict import predict
from tokenselect.cli.profile import profile
from tokenselect.cli.serve import serve
from tokenselect.cli.train import run as run_training
from tokenselect.cli.train import train
from tokenselect.cli.visualize import visualize
from tokenselect.inference.memory import keep_freed_memory

COMMANDS: dict[str, Any] = {
    "calibrate": calibrate,
    "classify": classify,
    "compare": compare,
    "data": {"_help": "Look at a data set before training on it.", "check": check},
    "evaluate": evaluate,
    "export": export,
    "predict": predict,
    "profile": profile,
    "serve": serve,
    "train": train,
    "visualize": visualize,
}


def main(arguments: list[str] | None = None) -> None:
    """Run `tokenselect`; a wrong value ends with its message and exit code 2, not a traceback."""
    if arguments is None:  # the process is ours: it may keep its memory from clip to clip
        keep_freed_memory()
        arguments = sys.argv[1:]
    try:
        if arguments[:1] == ["train"]:  # a recipe's file first, then its keys as options
            return run_training(arguments[1:])
        arguments = spell_flags(arguments)
        auto_cli(COMMANDS, args=arguments, prog="tokenselect")
    except (ValueError, TypeError, OSError) as error:
        print(f"tokenselect: {error}", file=sys.stderr)
        raise SystemExit(2) from error


def spell_flags(arguments: list[str]) -> list[str]:
    """Write `--json` as `--json=true`, hyphens in options as underscores, and a list as JSON."""
    command: Any = COMMANDS
    depth = 0
    for word in arguments:
        if isinstance(command, dict) and not word.startswith("-"):
            command, depth = command.get(word), depth + 1
    if not callable(command):
        return arguments
    parameters = list(inspect.signature(command).parameters.values())
    flags = {f"--{p.name}" for p in parameters if p.annotation in (bool, "bool")}
    hyphens = {f"--{p.name.replace('_', '-')}": f"--{p.name}" for p in parameters}
    arguments = [respell(word, hyphens) for word in arguments]
    spelled = [f"{word}=true" if word in flags else word for word in arguments]
    return join_words(spelled, depth) if parameters[0].annotation == list[str] else spelled


def respell(word: str, names: dict[str, str]) -> str:
    """Write `--target-ms` and `--target-ms=80` as the option is called."""
    name, equals, value = word.partition("=")
    return names.get(name, name) + equals + value


def join_words(arguments: list[str], depth: int) -> list[str]:
    """Make one JSON list of the words that are neither the command, its options nor their values.

    Args:
        arguments: each option with its value behind it or behind an equals sign.
        depth: words of the command itself.
    """
    words: list[str] = []
    others: list[str] = []
    takes_value = False
    for argument in arguments:
        is_option = argument.startswith("-") and len(argument) > 1
        (others if is_option or takes_value else words).append(argument)
        takes_value = (
            is_option and "=" not in argument and argument not in ("-h", "--help", "--print_config")
        )
    if len(words) == depth:
        return arguments
    return [*words[:depth], json.dumps(words[depth:]), *others]
