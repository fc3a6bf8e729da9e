"""The process log: whatever writes to standard error goes the same way, line by line."""
# ruff: noqa: N802 -- ids of threats are written with capitals

from __future__ import annotations

import json
import logging
import os
import re
import sys
import threading
import time
import warnings
from datetime import datetime
from typing import Final, Self, final

import pytest

from gateway.settings import LogSettings
from gateway.telemetry.history import History
from gateway.telemetry.process_log import (
    MAX_TEXT,
    MAX_UNFINISHED,
    ProcessLog,
    about,
    with_stack,
)

IS_UTC: Final = re.compile(r"[0-9]{4}-[0-9]{2}-[0-9]{2}T[0-9]{2}:[0-9]{2}:[0-9]{2}\.[0-9]{3}Z").fullmatch


@final
class Installed:
    """A process log in this process, from `install` to `lines`. pytest gives every phase of a test another
    `sys.stderr`, so a fixture cannot install it."""

    def __init__(self, monkeypatch: pytest.MonkeyPatch, capfd: pytest.CaptureFixture[str]) -> None:
        self._monkeypatch, self._capfd = monkeypatch, capfd
        self._log = ProcessLog()
        self._settings: LogSettings | None = None

    def configured(self, form: str, level: str = "info") -> Self:
        """With these settings from the file."""
        self._settings = LogSettings(format=form, level=level)
        return self

    def of_worker(self, worker: str) -> Self:
        self._log.of_worker(worker)
        return self

    def install(self) -> None:
        self._monkeypatch.setattr(logging.root, "handlers", [])
        self._monkeypatch.setattr(logging.root, "level", logging.root.level)
        self._monkeypatch.setattr(logging.getLogger("skewgate"), "level", logging.NOTSET)
        self._monkeypatch.setattr(sys, "stderr", sys.stderr)
        for hooks, name in ((threading, "excepthook"), (sys, "unraisablehook"), (warnings, "showwarning")):
            self._monkeypatch.setattr(hooks, name, getattr(hooks, name))
        self._log.install()
        if self._settings is not None:
            self._log.configure(self._settings)
        self._log.start()

    def events(self) -> list[dict[str, str]]:
        """Lines of JSON, without the time, which is checked."""
        events: list[dict[str, str]] = [json.loads(line) for line in self.lines()]
        for event in events:
            assert IS_UTC(event.pop("time"))
        return events

    def lines(self) -> list[str]:
        logging.captureWarnings(capture=False)
        self._log.close()
        assert self._log.dropped == 0
        return self._capfd.readouterr().err.splitlines()


def stream_of_standard_error() -> str:
    """As systemd names it in JOURNAL_STREAM."""
    found = os.fstat(2)
    return f"{found.st_dev}:{found.st_ino}"


@pytest.fixture
def process_log(monkeypatch: pytest.MonkeyPatch, capfd: pytest.CaptureFixture[str]) -> Installed:
    return Installed(monkeypatch, capfd)


def test_a_line_of_the_log_has_its_time_level_and_logger(process_log: Installed) -> None:
    process_log.install()
    logging.getLogger("some.library").info("hello %s", "wörld")
    logging.getLogger("some.library").debug("not this one")
    (line,) = process_log.lines()
    assert IS_UTC(line[:24])
    assert line[24:] == " INFO some.library: hello wörld"
    assert abs(datetime.fromisoformat(line[:24]).timestamp() - time.time()) < 60


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


def test_R3_N8_in_the_journal_each_line_has_its_priority_and_no_time(
    process_log: Installed, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("JOURNAL_STREAM", stream_of_standard_error())
    process_log.configured("text", "debug").of_worker("3")
    process_log.install()
    log = logging.getLogger("skewgate.offer")
    log.debug("one")
    log.info("two\n<0>lines")
    log.warning("three")
    log.critical("four")
    try:
        raise ValueError("wrong")
    except ValueError:
        log.exception("five")
    print("printed\n\ntwice", file=sys.stderr)
    *lines, first, second, third = process_log.lines()
    assert lines[:5] == [
        "<7>DEBUG skewgate.offer: worker 3: one",
        "<6>INFO skewgate.offer: worker 3: two",
        "<6>  <0>lines",
        "<4>WARNING skewgate.offer: worker 3: three",
        "<2>CRITICAL skewgate.offer: worker 3: four",
    ]
    assert lines[5:7] == [
        "<3>ERROR skewgate.offer: worker 3: five",
        "<3>  Traceback (most recent call last):",
    ]
    assert lines[-1] == "<3>  ValueError: wrong"
    assert all(line.startswith("<3>  ") for line in lines[6:])
    assert [first, second, third] == ["<3>printed", "<3>", "<3>twice"]


def test_R3_N8_json_in_the_journal_keeps_its_time(
    process_log: Installed, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("JOURNAL_STREAM", stream_of_standard_error())
    process_log.configured("json").install()
    logging.getLogger("skewgate.offer").warning("two\nlines")
    print("printed", file=sys.stderr)
    first, second = process_log.lines()
    assert (first[:3], second[:3]) == ("<4>", "<3>")
    event = json.loads(first[3:])
    assert IS_UTC(event["time"])
    assert event["message"] == "two\nlines"
    assert json.loads(second[3:])["message"] == "printed"


@pytest.mark.parametrize("stream", ["", "8:15", "x"])
def test_R3_N8_another_stream_than_the_journal_gets_no_priorities(
    process_log: Installed, monkeypatch: pytest.MonkeyPatch, stream: str
) -> None:
    """As where a shell in the unit sends standard error to a file: the variable names another one."""
    monkeypatch.setenv("JOURNAL_STREAM", stream)
    process_log.install()
    logging.getLogger("skewgate.offer").warning("one")
    (line,) = process_log.lines()
    assert IS_UTC(line[:24])


def test_an_event_of_a_worker_names_it(process_log: Installed) -> None:
    process_log.of_worker("3")
    process_log.install()
    logging.getLogger("skewgate.offer").warning("two\nlines")
    print("printed", file=sys.stderr)
    lines = process_log.lines()
    assert [lines[0][24:], *lines[1:]] == [
        " WARNING skewgate.offer: worker 3: two",
        "  lines",
        "printed",
    ]


def test_an_event_of_a_worker_names_it_in_json(process_log: Installed) -> None:
    process_log.of_worker("3")
    process_log.configured("json").install()
    logging.getLogger("skewgate.offer").warning("one", extra={"service": "s"})
    print("printed", file=sys.stderr)
    assert process_log.events() == [
        {"level": "warning", "logger": "skewgate.offer", "message": "one", "service": "s", "worker": "3"},
        {"level": "error", "logger": "stderr", "message": "printed", "worker": "3"},
    ]


def test_a_line_with_wrong_arguments_is_a_traceback_and_no_error(process_log: Installed) -> None:
    process_log.install()
    logging.getLogger("library").warning("%d", "no number")
    lines = process_log.lines()
    assert lines[0].endswith("ERROR skewgate.log: a line of library cannot be formatted: '%d'")
    assert lines[-1].startswith("  TypeError: ")
    assert all(line.startswith("  ") for line in lines[1:])


@pytest.mark.filterwarnings("ignore::pytest.PytestUnhandledThreadExceptionWarning")
def test_the_traceback_of_a_thread_goes_there_as_well(process_log: Installed) -> None:
    process_log.install()

    def fail() -> None:
        raise ValueError("in a thread")

    thread = threading.Thread(target=fail, name="worker")
    thread.start()
    thread.join()
    lines = process_log.lines()
    assert lines[0].endswith("ERROR skewgate.log: thread worker ended with an error")
    assert lines[-1] == "  ValueError: in a thread"


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


def test_the_last_line_is_written_although_it_has_no_end(process_log: Installed) -> None:
    process_log.install()
    print("whole", file=sys.stderr)
    sys.stderr.write("not whole")
    assert process_log.lines() == ["whole", "not whole"]


def test_in_json_every_event_is_one_line_with_the_keys_of_the_access_log(process_log: Installed) -> None:
    process_log.configured("json").install()
    log = logging.getLogger("skewgate.backend")
    log.warning("baremetal/api-1: %s", "is lost\nnow \u2028 \x1b[2J é", extra=about("baremetal/api-1"))
    log.info("baremetal: more", extra=about("baremetal"))
    try:
        raise ValueError("wrong")
    except ValueError:
        log.exception("a bug")
    log.error("with a stack", extra=with_stack("one\n  two\n"))
    events = process_log.events()
    trace = events[2].pop("stack")
    assert trace.startswith("Traceback (most recent call last):\n")
    assert trace.endswith("\nValueError: wrong")
    assert events == [
        {
            "level": "warning",
            "logger": "skewgate.backend",
            "message": "baremetal/api-1: is lost\nnow \u2028 \x1b[2J é",
            "service": "baremetal",
            "backend": "api-1",
        },
        {
            "level": "info",
            "logger": "skewgate.backend",
            "message": "baremetal: more",
            "service": "baremetal",
        },
        {"level": "error", "logger": "skewgate.backend", "message": "a bug"},
        {"level": "error", "logger": "skewgate.backend", "message": "with a stack", "stack": "one\n  two"},
    ]


def test_what_is_not_written_is_kept_for_the_history_nevertheless(process_log: Installed) -> None:
    process_log.configured("json", level="error").install()
    history = History()
    history.start()
    for logger in ("skewgate.offer", "some.library"):
        logging.getLogger(logger).debug("details of %s", logger)
        logging.getLogger(logger).warning("a warning of %s", logger)
        logging.getLogger(logger).error("an error of %s", logger)
    history.close()
    assert [event["message"] for event in process_log.events()] == [
        *("an error of skewgate.offer", "an error of some.library"),
    ]
    assert [event.text for event in history.latest()] == [
        *("an error of skewgate.offer", "a warning of skewgate.offer"),
    ]


def test_in_json_what_is_printed_is_an_event_as_well(process_log: Installed) -> None:
    process_log.configured("json").install()
    print("one\n\ntw", end="", file=sys.stderr)
    print('o "quoted"', file=sys.stderr)
    sys.stderr.write("not whole")
    assert process_log.events() == [
        {"level": "error", "logger": "stderr", "message": text}
        for text in ("one", 'two "quoted"', "not whole")
    ]


@pytest.mark.filterwarnings("ignore::pytest.PytestUnhandledThreadExceptionWarning")
def test_in_json_a_thread_a_finalizer_and_a_warning_are_an_event_each(process_log: Installed) -> None:
    process_log.configured("json").install()

    def fail() -> None:
        raise ValueError("in a thread")

    class Finalized:
        def __del__(self) -> None:
            raise ValueError("in a finalizer")

    thread = threading.Thread(target=fail, name="worker")
    thread.start()
    thread.join()
    Finalized()
    with warnings.catch_warnings():
        warnings.simplefilter("always")
        warnings.showwarning = logging._showwarning  # type: ignore[attr-defined]
        warnings.warn("old", DeprecationWarning, stacklevel=1)
    logging.getLogger("library").warning("%d", "no number")
    first, second, third, fourth = process_log.events()
    assert first["message"] == "thread worker ended with an error"
    assert first["stack"].endswith("ValueError: in a thread")
    assert "__del__" in second["message"]
    assert second["stack"].endswith("ValueError: in a finalizer")
    assert (third["logger"], third["level"]) == ("py.warnings", "warning")
    assert "DeprecationWarning: old" in third["message"]
    assert fourth["message"] == "a line of library cannot be formatted: '%d'"
    assert "TypeError" in fourth["stack"]


def test_in_text_no_line_of_an_event_looks_like_another_event(process_log: Installed) -> None:
    process_log.configured("text").install()
    logging.getLogger("skewgate").info("one\n2026-11-22T00:00:00.000Z ERROR skewgate: forged\rtwo")
    logging.getLogger("skewgate").info("a stack", extra=with_stack("File\n  line"))
    lines = process_log.lines()
    assert [line[24:] for line in (lines[0], lines[3])] == [" INFO skewgate: one", " INFO skewgate: a stack"]
    assert (lines[1][:3], lines[2], *lines[4:]) == ("  2", "  two", "  File", "    line")


@pytest.mark.parametrize(
    "level,written",
    [
        ("debug", ["own debug", "own info", "own warning", "info", "warning"]),
        ("info", ["own info", "own warning", "info", "warning"]),
        ("warning", ["own warning", "warning"]),
        ("error", []),
    ],
)
def test_the_level_is_that_of_the_file_but_libraries_never_write_debug_lines(
    process_log: Installed, level: str, written: list[str]
) -> None:
    process_log.configured("json", level).install()
    for name, prefix in (("skewgate.backend", "own "), ("library", "")):
        for each in ("debug", "info", "warning"):
            logging.getLogger(name).log(getattr(logging, each.upper()), "%s%s", prefix, each)
    assert [event["message"] for event in process_log.events()] == written


def test_an_event_is_cut_where_it_is_endless(process_log: Installed) -> None:
    process_log.configured("json").install()
    logging.getLogger("skewgate").error("x" * (2 * MAX_TEXT))
    (event,) = process_log.events()
    assert event["message"] == f"{'x' * (MAX_TEXT - 3)}..."
