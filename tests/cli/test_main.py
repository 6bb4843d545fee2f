import os
import signal
import subprocess
import sys
from pathlib import Path

import pytest
import torch

import tokenselect
from tokenselect.cli.main import COMMANDS, main
from tokenselect.cli.options import spell_words
from tokenselect.data import write_video
from tokenselect.extras import MissingExtraError, require
from tokenselect.inference import memory

BUNDLED = Path(tokenselect.__file__).parent / "assets" / "synthetic_mvit_mini.safetensors"


@pytest.mark.parametrize(("given", "kept"), [(None, [True]), (["profile", "--help"], [])])
def test_a_process_of_our_own_keeps_its_memory_and_one_of_others_does_not(monkeypatch, given, kept):
    asked = []
    monkeypatch.setattr(memory, "keep_freed_memory", lambda: asked.append(True))
    monkeypatch.setattr(sys, "argv", ["tokenselect", "profile", "--help"])
    with pytest.raises(SystemExit):
        main(given)
    assert asked == kept


@pytest.mark.parametrize(
    ("typed", "meant"),
    [
        ("calibrate --target-ms 80 --json", "--target_ms 80 --json=true"),
        ("calibrate --target-gmacs=40", "--target_gmacs=40"),
        ("profile mvit_mini --json", "mvit_mini --json=true"),
        ("data check d --min-frames 8 --quick", "d --min_frames 8 --quick=true"),
        ("predict --class-names n.txt a", '["a"] --class_names n.txt'),
    ],
)
def test_options_may_be_typed_as_people_do(typed, meant):
    name = next(name for name in COMMANDS if typed.startswith(name))
    assert spell_words(COMMANDS[name].load(), typed.removeprefix(name).split()) == meant.split()


@pytest.mark.parametrize("words", [["--help"], ["--version"], []])
def test_help_and_version_do_not_import_torch(words):
    script = (
        "import sys; from tokenselect.cli.main import main\n"
        f"try: main({words})\nexcept SystemExit: pass\n"
        "assert 'torch' not in sys.modules and 'numpy' not in sys.modules"
    )
    told = subprocess.run([sys.executable, "-c", script], capture_output=True, text=True)
    assert told.returncode == 0, told.stderr
    assert "tokenselect" in told.stdout


def test_help_lists_every_command_and_each_can_be_loaded(capsys):
    with pytest.raises(SystemExit):
        main(["--help"])
    told = capsys.readouterr().out
    assert all(name in told and callable(command.load()) for name, command in COMMANDS.items())


def test_an_unknown_command_ends_with_a_hint(capsys):
    with pytest.raises(SystemExit) as ended:
        main(["pred", "clip.mp4"])
    assert ended.value.code == 2
    assert "did you mean 'predict'?" in capsys.readouterr().err


@pytest.mark.parametrize(
    ("words", "module", "extra"),
    [
        (["serve"], "uvicorn", "serve"),
        (["classify", "clip.mp4", "--out", "rows.parquet"], "pyarrow", "parquet"),
        (["classify", "clip.mp4", "--out", "rows.csv", "--ray", "local"], "ray", "ray"),
        (["predict", "sample:3", "--runtime", "onnxruntime"], "onnxscript", "onnx"),
        (["predict", "sample:3", "--runtime", "openvino"], "openvino", "openvino"),
    ],
    ids=lambda value: " ".join(value[::2]) if isinstance(value, list) else value,
)
@pytest.mark.slow
def test_a_missing_extra_ends_in_one_sentence(words, module, extra, monkeypatch, capsys, tmp_path):
    monkeypatch.chdir(tmp_path)
    write_video("clip.mp4", torch.zeros(4, 3, 32, 32, dtype=torch.uint8))
    if words[0] == "classify":
        words = [*words, "--checkpoint", str(BUNDLED)]
    for name in [name for name in sys.modules if name.partition(".")[0] == module]:
        monkeypatch.setitem(sys.modules, name, None)
    monkeypatch.setitem(sys.modules, module, None)
    with pytest.raises(SystemExit) as ended:
        main(words)
    assert ended.value.code == 2
    told = capsys.readouterr().err.strip().splitlines()[-1]
    assert told.startswith("tokenselect: ") and told.endswith(f"pip install 'tokenselect[{extra}]'")


def test_the_sentence_names_the_package():
    with pytest.raises(MissingExtraError, match=r"an x needs no_such_package: pip install"):
        require("no_such_package", extra="x", purpose="an x")


def test_a_mistake_of_ours_is_not_hidden(monkeypatch):
    def broken(model: str) -> None:
        raise TypeError("ours")

    monkeypatch.setattr(type(COMMANDS["profile"]), "load", lambda self: broken)
    with pytest.raises(TypeError, match="ours"):
        main(["profile", "mvit_mini"])


def test_evaluate_refuses_a_missing_folder_before_any_work(capsys):
    with pytest.raises(SystemExit):
        main(["evaluate", "no_such_run", "test", "--predictions", "gone/rows.csv"])
    assert "the folder of gone/rows.csv does not exist" in capsys.readouterr().err


def test_every_public_name_is_there():
    assert all(getattr(tokenselect, name) is not None for name in tokenselect.__all__)
    assert set(tokenselect._HOME_OF) <= set(tokenselect.__all__)
    with pytest.raises(AttributeError, match="no attribute 'nothing'"):
        _ = tokenselect.nothing


@pytest.fixture
def ctrl_c():
    """Python's own handling of Ctrl+C, which tests that run in the background begin without."""
    before = signal.signal(signal.SIGINT, signal.default_int_handler)
    yield
    signal.signal(signal.SIGINT, before)


@pytest.mark.usefixtures("ctrl_c")
def test_ctrl_c_that_compiled_code_turns_into_an_error_is_an_interrupt(monkeypatch, capsys):
    def interrupted(words, *, is_own_process):
        try:
            os.kill(os.getpid(), signal.SIGINT)
        except KeyboardInterrupt:
            raise ValueError("the file is damaged") from None

    monkeypatch.setattr("tokenselect.cli.main.dispatch", interrupted)
    with pytest.raises(SystemExit) as ended:
        main(["predict"])
    assert ended.value.code == 130
    assert capsys.readouterr().err == "tokenselect: interrupted\n"
    assert signal.getsignal(signal.SIGINT) is signal.default_int_handler
