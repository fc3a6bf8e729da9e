"""The process log: whatever writes to standard error goes the same way, line by line."""

from __future__ import annotations

import logging
import sys
import threading
import time
from typing import final

import pytest

from gateway.telemetry.process_log import MAX_UNFINISHED, ProcessLog


@final
class Installed:
    """A process log in this process, from `install` to `lines`. pytest gives every phase of a test another
    `sys.stderr`, so a fixture cannot install it."""

    def __init__(self, monkeypatch: pytest.MonkeyPatch, capfd: pytest.CaptureFixture[str]) -> None:
        self._monkeypatch, self._capfd = monkeypatch, capfd
        self._log = ProcessLog()

    def install(self) -> None:
        self._monkeypatch.setattr(logging.root, "handlers", [])
        self._monkeypatch.setattr(logging.root, "level", logging.root.level)
        self._monkeypatch.setattr(sys, "stderr", sys.stderr)
        self._log.install()
        self._log.start()

    def lines(self) -> list[str]:
        self._log.close()
        assert self._log.dropped == 0
        return self._capfd.readouterr().err.splitlines()


@pytest.fixture
def process_log(monkeypatch: pytest.MonkeyPatch, capfd: pytest.CaptureFixture[str]) -> Installed:
    return Installed(monkeypatch, capfd)


def test_a_line_of_the_log_has_its_time_level_and_logger(process_log: Installed) -> None:
    process_log.install()
    logging.getLogger("some.library").info("hello %s", "wörld")
    logging.getLogger("some.library").debug("not this one")
    (line,) = process_log.lines()
    assert line[19] == ","
    assert line[24:] == "INFO some.library: hello wörld"
    assert time.strptime(line[:19], "%Y-%m-%d %H:%M:%S")


def test_all_that_is_written_to_standard_error_keeps_its_order(process_log: Installed) -> None:
    process_log.install()
    print("one,", "two", file=sys.stderr)
    logging.getLogger("three").warning("three")
    sys.stderr.writelines(["fo", "ur\n"])
    print("fi", end="", file=sys.stderr)
    print("ve\nsix", file=sys.stderr, flush=True)
    lines = process_log.lines()
    assert lines[0] == "one, two"
    assert lines[1].endswith("WARNING three: three")
    assert lines[2:] == ["four", "five", "six"]


def test_a_line_with_wrong_arguments_is_a_traceback_and_no_error(process_log: Installed) -> None:
    process_log.install()
    logging.getLogger("library").warning("%d", "no number")
    lines = process_log.lines()
    assert lines[0] == "--- Logging error ---"
    assert any(line.startswith("TypeError: ") for line in lines)


@pytest.mark.filterwarnings("ignore::pytest.PytestUnhandledThreadExceptionWarning")
def test_the_traceback_of_a_thread_goes_there_as_well(
    process_log: Installed, monkeypatch: pytest.MonkeyPatch
) -> None:
    process_log.install()
    monkeypatch.setattr(threading, "excepthook", threading.__excepthook__)

    def fail() -> None:
        raise ValueError("in a thread")

    thread = threading.Thread(target=fail, name="worker")
    thread.start()
    thread.join()
    lines = process_log.lines()
    assert lines[0] == "Exception in thread worker:"
    assert lines[-1] == "ValueError: in a thread"


def test_a_line_without_an_end_gets_one(process_log: Installed) -> None:
    process_log.install()
    for _ in range(3):
        sys.stderr.write("x" * (MAX_UNFINISHED // 2))
    sys.stderr.write("\n")
    assert [len(line) for line in process_log.lines()] == [3 * MAX_UNFINISHED // 2, 0]


def test_it_is_the_same_stream_for_who_asks(process_log: Installed) -> None:
    process_log.install()
    assert sys.stderr.fileno() == 2
    assert not sys.stderr.isatty()
    assert sys.stderr.writable()
    assert process_log.lines() == []
