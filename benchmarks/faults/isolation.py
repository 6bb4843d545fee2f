"""Cases run in forked processes, so that a crash or a hang is an outcome and not the end."""

import contextlib
import io
import json
import os
import select
import signal
import time
import traceback
from collections.abc import Callable, Iterator, Sequence
from dataclasses import asdict, dataclass
from unittest import mock

from tokenselect.cli.main import EXPECTED, dispatch, main

GOOD = ("answered", "refused")
BAD = ("crash", "hang", "traceback", "nameless error", "lost work", "wrong figure")


@dataclass(frozen=True)
class Outcome:
    """What became of one case: one of `GOOD` or `BAD`, and what was said."""

    part: str
    case: str
    kind: str
    detail: str = ""


@dataclass(frozen=True)
class Case:
    """One thing to try.

    Attributes:
        part: of the run, such as "predict".
        name: says how to make the case again.
        call: does it; returns normally, or raises.
        names: of which an error must say one, such as the file.
    """

    part: str
    name: str
    call: Callable[[], object]
    names: tuple[str, ...]


class WrongFigureError(AssertionError):
    """An answer that differs from what it must be."""


class LostWorkError(AssertionError):
    """Rows or steps that were there and are not."""


def judge(case: Case) -> Outcome:
    """Try a case in this process."""

    def tell(kind: str, detail: object = "") -> Outcome:
        return Outcome(case.part, case.name, kind, str(detail)[:600])

    try:
        case.call()
    except EXPECTED as error:
        is_named = any(name in str(error) for name in case.names)
        return tell("refused" if is_named else "nameless error", repr(error))
    except WrongFigureError as error:
        return tell("wrong figure", error)
    except LostWorkError as error:
        return tell("lost work", error)
    except BaseException:
        return tell("traceback", traceback.format_exc()[-600:])
    return tell("answered")


@dataclass
class Tally:
    """Outcomes of many cases, and the most memory that any process took.

    Attributes:
        outcomes: in the order of the cases.
        peak_mb: resident megabytes.
    """

    outcomes: list[Outcome]
    peak_mb: float = 0.0

    @property
    def failures(self) -> list[Outcome]:
        """Those that must not be."""
        return [outcome for outcome in self.outcomes if outcome.kind in BAD]


def run_isolated(cases: Sequence[Case], *, seconds: float = 60.0) -> Tally:
    """Try cases in forked processes: one dies, the next goes on behind the case that killed it.

    Args:
        cases: their calls are inherited, nothing is pickled.
        seconds: that a case may take before it counts as a hang.
    """
    tally = Tally([])
    while len(tally.outcomes) < len(cases):
        _run_until_death(cases[len(tally.outcomes) :], seconds, tally)
    return tally


def _run_until_death(cases: Sequence[Case], seconds: float, tally: Tally) -> None:
    receiver, sender = os.pipe()
    process = os.fork()
    if process == 0:
        os.close(receiver)
        _work(cases, sender)
    os.close(sender)
    told, has_hung = 0, False
    with os.fdopen(receiver, "rb") as answers:
        for line in _lines(answers, seconds):
            if line is None:
                has_hung = True
                os.kill(process, signal.SIGKILL)
                break
            tally.outcomes.append(Outcome(**json.loads(line)))
            told += 1
    _, status, usage = os.wait4(process, 0)
    tally.peak_mb = max(tally.peak_mb, usage.ru_maxrss / 1024)
    if told < len(cases):
        kind = "hang" if has_hung else "crash"
        detail = f"no answer in {seconds:g} s" if has_hung else f"status {status}"
        tally.outcomes.append(Outcome(cases[told].part, cases[told].name, kind, detail))


def _lines(answers: io.BufferedReader, seconds: float) -> Iterator[bytes | None]:
    """Give whole lines as they come; None where none came in time."""
    held = b""
    while True:
        if not select.select([answers], [], [], seconds)[0]:
            yield None
            return
        piece = os.read(answers.fileno(), 1 << 16)
        if not piece:
            return
        *whole, held = (held + piece).split(b"\n")
        yield from whole


def _work(cases: Sequence[Case], sender: int) -> None:
    """Try cases and tell each outcome; never returns."""
    try:
        with quiet():
            for case in cases:
                told = json.dumps(asdict(judge(case))).encode() + b"\n"
                while told:
                    told = told[os.write(sender, told) :]
    finally:
        os._exit(0)


@contextlib.contextmanager
def quiet() -> Iterator[None]:
    """Send what is printed nowhere."""
    with (
        open(os.devnull, "w") as nowhere,
        contextlib.redirect_stdout(nowhere),
        contextlib.redirect_stderr(nowhere),
    ):
        yield


class RefusedError(ValueError):
    """A command that ended with exit code 2; the message is what it printed."""


def run_command(words: Sequence[str]) -> str:
    """Run `tokenselect` with these words in this process; return what it printed."""
    out, errors = io.StringIO(), io.StringIO()
    try:
        with contextlib.redirect_stdout(out), contextlib.redirect_stderr(errors):
            main(list(words))
    except SystemExit as ended:
        if ended.code not in (None, 0, 1):
            raise RefusedError(errors.getvalue()) from None
    return out.getvalue()


@dataclass(frozen=True)
class Ended:
    """How a command in a process of its own ended.

    Attributes:
        code: exit code; negative for a signal.
        told: what it wrote to both streams.
        seconds: that it took.
        peak_mb: resident megabytes.
    """

    code: int
    told: str
    seconds: float
    peak_mb: float


def run_forked(
    words: Sequence[str],
    *,
    prepare: Callable[[], object] = lambda: None,
    after: float | None = None,
    by: signal.Signals = signal.SIGKILL,
    patience: float = 300.0,
) -> Ended:
    """Run `tokenselect` in a forked process, and end it by a signal after some seconds.

    Args:
        words: of the command.
        prepare: called in the process first, for limits.
        after: seconds to the signal; None lets it run to its end.
        by: the signal.
        patience: seconds after which it counts as hanging.
    """
    receiver, sender = os.pipe()
    start = time.monotonic()
    signal.pthread_sigmask(signal.SIG_BLOCK, [signal.SIGINT])
    process = os.fork()
    if process == 0:
        _run_words(words, sender, prepare)
    signal.pthread_sigmask(signal.SIG_UNBLOCK, [signal.SIGINT])
    with contextlib.suppress(PermissionError):
        os.setpgid(process, process)  # in both, so that it is done before a signal is sent
    os.close(sender)
    told, is_sent, ended = b"", False, (0, 0, None)
    while ended[0] == 0:
        ended = os.wait4(process, os.WNOHANG)
        while select.select([receiver], [], [], 0)[0] and (piece := os.read(receiver, 1 << 16)):
            told += piece
        passed = time.monotonic() - start
        if after is not None and not is_sent and passed > after and ended[0] == 0:
            os.killpg(process, by)  # all of it, as a terminal does
            is_sent = True
        if passed > patience and ended[0] == 0:
            os.killpg(process, signal.SIGKILL)
        time.sleep(0.002)
    os.close(receiver)
    with contextlib.suppress(ProcessLookupError):
        os.killpg(process, signal.SIGKILL)  # workers that outlive it
    seconds = time.monotonic() - start
    assert ended[2] is not None
    code, text = os.waitstatus_to_exitcode(ended[1]), told.decode("utf-8", "replace")
    return Ended(code, text, seconds, ended[2].ru_maxrss / 1024)


def _run_words(words: Sequence[str], sender: int, prepare: Callable[[], object]) -> None:
    code = 99
    try:
        os.setpgid(0, 0)
        os.dup2(sender, 1)
        os.dup2(sender, 2)
        with (
            open(1, "w", closefd=False) as out,
            open(2, "w", closefd=False) as errors,
            contextlib.redirect_stdout(out),
            contextlib.redirect_stderr(errors),
        ):
            try:
                signal.signal(signal.SIGINT, signal.default_int_handler)  # a job in the background
                prepare()  # has it ignored
                with mock.patch("tokenselect.cli.main.dispatch", _dispatch_interruptibly):
                    main(list(words))
                code = 0
            except SystemExit as ended:
                code = ended.code if isinstance(ended.code, int) else 1 if ended.code else 0
            except BaseException:
                traceback.print_exc()
    finally:
        os._exit(code)


def _dispatch_interruptibly(words: list[str], *, is_own_process: bool) -> None:
    """Let Ctrl+C reach the command, not what starts it or tells how it ended."""
    try:
        signal.pthread_sigmask(signal.SIG_UNBLOCK, [signal.SIGINT])  # raises one that waits
        dispatch(words, is_own_process=is_own_process)
    finally:
        signal.pthread_sigmask(signal.SIG_BLOCK, [signal.SIGINT])
