import sys

import pytest

from tokenselect.cli import main as main_module
from tokenselect.cli.main import main, spell_flags


@pytest.mark.parametrize(("given", "kept"), [(None, [True]), (["--help"], [])])
def test_a_process_of_our_own_keeps_its_memory_and_one_of_others_does_not(monkeypatch, given, kept):
    asked = []
    monkeypatch.setattr(main_module, "keep_freed_memory", lambda: asked.append(True))
    monkeypatch.setattr(sys, "argv", ["tokenselect", "--help"])
    with pytest.raises(SystemExit):
        main(given)
    assert asked == kept


@pytest.mark.parametrize(
    ("typed", "meant"),
    [
        ("calibrate --target-ms 80 --json", "calibrate --target_ms 80 --json=true"),
        ("calibrate --target-gmacs=40", "calibrate --target_gmacs=40"),
        ("profile mvit_mini --json", "profile mvit_mini --json=true"),
        ("data check d --min-frames 8 --quick", "data check d --min_frames 8 --quick=true"),
        ("predict --class-names n.txt a", 'predict ["a"] --class_names n.txt'),
        ("--help", "--help"),
    ],
)  # fmt: skip
def test_options_may_be_typed_as_people_do(typed, meant):
    assert spell_flags(typed.split()) == meant.split()
