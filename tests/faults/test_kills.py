"""Commands that are ended at any moment and run again leave what untouched ones leave."""

import pytest

from benchmarks.faults.kills import end_command, make_commands
from tests.faults.conftest import SEED


@pytest.fixture(scope="module")
def commands(bench, tmp_path_factory):  # may be made twice where tests are spread over processes
    made = make_commands(tmp_path_factory.mktemp("commands"), bench.checkpoint)
    return {command.name: command for command in made}


@pytest.mark.parametrize(
    ("name", "how"),
    [
        ("train", "killed"),
        ("train", "full disk"),
        ("classify", "killed"),
        ("classify", "Ctrl+C"),
        ("classify", "full disk"),
        ("evaluate", "full disk"),
    ],
)
def test_an_ended_command_goes_on_and_loses_nothing(commands, tmp_path, holds, name, how):
    tally = end_command(commands[name], tmp_path, how=how, times=2, seed=SEED)
    holds(tally, at_least=1)
