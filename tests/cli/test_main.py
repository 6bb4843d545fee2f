import pytest

from tokenselect.cli.main import main, spell_flags


def test_a_bare_flag_means_yes_also_in_a_nested_command():
    assert spell_flags(["data", "check", "videos", "--json"])[-1] == "--json=true"
    assert spell_flags(["profile", "mvit_mini", "--json", "--plan", "T0_0.5"])[2] == "--json=true"


def test_other_words_stay_as_they_are():
    words = ["profile", "mvit_mini", "--repeats", "3"]
    assert spell_flags(words) == words
    assert spell_flags(["--help"]) == ["--help"]


def test_every_command_is_listed_with_what_it_does(capsys):
    with pytest.raises(SystemExit):
        main(["--help"])
    printed = capsys.readouterr().out
    assert "profile" in printed and "Look at a data set" in printed
