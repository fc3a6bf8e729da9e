"""The process log: everything that a running gateway writes to standard error, without waiting.

    logging, warnings, tracebacks  ->  ProcessLog  ─┐
    print                          ->  sys.stderr  ─┴─►  LineWriter  ->  standard error

One event is one line, as text or as JSON; in text the lines of a traceback follow, indented. `sys.stderr` is
replaced, because a warning or the traceback of a thread would block the event loop as well (threats R-B8).
Only `run` installs it: the other commands write directly. docs/logs.md explains the fields.

If standard error leads to systemd's journal, each line begins with the priority of its event (`<4>`,
sd-daemon(3)), and a line of text has no time: the journal stores both apart from the line.
"""

from __future__ import annotations

import io
import logging
import os
import sys
import threading
import time
from collections.abc import Callable, Sequence
from types import TracebackType
from typing import TYPE_CHECKING, Any, Final, final

from gateway.telemetry.access_log import quoted
from gateway.telemetry.line_writer import STDERR, LineWriter

if TYPE_CHECKING:
    from _typeshed import ReadableBuffer

    from gateway.settings import LogSettings

MAX_UNFINISHED: Final = 65_536
"""Maximum bytes of a printed line; a longer one is cut in two."""

MAX_TEXT: Final = 65_536
"""Maximum characters of one value of a log event: a traceback may be long."""

GATEWAY: Final = "skewgate"
"""Name of the root of the gateway's own loggers."""

STREAM: Final = "stderr"
"""Logger name in events made of lines that were printed to standard error."""

SUBJECTS: Final = ("service", "backend")
"""Fields that name the subject of a log event, as in the access log (`about`)."""

BY_OPERATOR: Final = "skewgate_by_operator"
"""Attribute of a log record that is true if the event is a command of an operator."""

OUTAGE: Final = "skewgate_outage"
"""Attribute of a log record: True if an outage of the service begins, False if it ends."""

_STACK: Final = "skewgate_stack"

_PRIORITIES: Final = ((logging.CRITICAL, 2), (logging.ERROR, 3), (logging.WARNING, 4), (logging.INFO, 6))
"""Syslog priorities as (lowest log level, priority); for an event below all of them it is 7."""

_log = logging.getLogger("skewgate.log")


def named(names: Sequence[str]) -> str:
    """Joins names as `api-1, api-2, api-3, api-4 and 7 more`."""
    more = f" and {len(names) - 4} more" if len(names) > 4 else ""
    return ", ".join(names[:4]) + more


def about(key: str) -> dict[str, str]:
    """Makes a log call's `extra` for an event about a service, or about a backend (SERVICE/BACKEND)."""
    service, _, backend = key.partition("/")
    return {"service": service, "backend": backend} if backend else {"service": service}


def by_operator(key: str) -> dict[str, object]:
    """Makes a log call's `extra` for an event that an operator has commanded: as `about`, and marked so."""
    return {**about(key), BY_OPERATOR: True}


def outage(key: str, *, begins: bool) -> dict[str, object]:
    """Makes a log call's `extra` for an event with which an outage of a service begins or ends."""
    return {**about(key), OUTAGE: begins}


def with_stack(stack: str) -> dict[str, str]:
    """Makes a log call's `extra` for an event with a stack, as `traceback` formats it."""
    return {_STACK: stack}


@final
class ProcessLog(logging.Handler):
    """Writes the process log, as the root logger's handler. `logging.shutdown` closes it in bounded time."""

    def __init__(self) -> None:
        super().__init__()
        self._lines = _Lines()
        self.setFormatter(self._lines)
        self._encoding = getattr(sys.stderr, "encoding", None) or "utf-8"
        self._writer = LineWriter(STDERR, self._lost_line)
        self._stream = _Stream(self._writer)

    @property
    def dropped(self) -> int:
        return self._writer.dropped

    def install(self) -> None:
        """Takes over everything that this process writes to standard error."""
        logging.basicConfig(level=logging.INFO, handlers=[self])
        logging.captureWarnings(capture=True)
        self._lines.for_systemd = _leads_to_systemd()
        self._choose_printed()
        sys.stderr = io.TextIOWrapper(
            self._stream, encoding=self._encoding, errors="backslashreplace", write_through=True
        )
        threading.excepthook = _log_thread_error
        sys.unraisablehook = _log_unraisable

    def of_worker(self, worker: str) -> None:
        """Adds the name of this worker process to each event."""
        self._lines.worker = worker

    def configure(self, settings: LogSettings) -> None:
        """Sets format and level of the log. Events of libraries below `info` are never written: their debug
        lines may show secrets. Events of the gateway at `info` are always made, for `telemetry.history`."""
        number, as_json = logging.getLevelNamesMapping()[settings.level.upper()], settings.format == "json"
        self.setLevel(number)
        logging.getLogger(GATEWAY).setLevel(min(number, logging.INFO))
        logging.getLogger().setLevel(max(number, logging.INFO))
        self._lines.as_json = as_json
        self._choose_printed()

    def start(self) -> None:
        """Starts writing the log. Lines wait till then: a process that still forks must not own a thread."""
        self._writer.start()

    def emit(self, record: logging.LogRecord) -> None:
        try:
            self._writer.put(self._encoded(record))
        except Exception:  # noqa: BLE001 - as every handler: a line with wrong arguments must not be an error
            self.handleError(record)

    def handleError(self, record: logging.LogRecord) -> None:  # noqa: N802 - the name that logging calls
        """Logs an error about an event that cannot be formatted."""
        text = f"a line of {record.name} cannot be formatted: {record.msg!r}"
        event = logging.LogRecord("skewgate.log", logging.ERROR, "", 0, text, None, sys.exc_info())
        self._writer.put(self._encoded(event))

    def close(self) -> None:
        self._stream.end_line()
        self._writer.close()
        super().close()

    def _choose_printed(self) -> None:
        if self._lines.as_json:
            self._stream.as_events = self._printed
        else:
            self._stream.as_events = _with_priority if self._lines.for_systemd else None

    def _lost_line(self, text: str) -> bytes:
        return self._encoded(logging.LogRecord("skewgate.log", logging.WARNING, "", 0, text, None, None))

    def _printed(self, lines: bytes) -> bytes:
        texts = lines.decode(self._encoding, "backslashreplace").splitlines()
        events = (logging.LogRecord(STREAM, logging.ERROR, "", 0, text, None, None) for text in texts if text)
        return b"".join(map(self._encoded, events))

    def _encoded(self, record: logging.LogRecord) -> bytes:
        return f"{self.format(record)}\n".encode(self._encoding, "backslashreplace")


@final
class _Lines(logging.Formatter):
    """Formatter of log events as one line of JSON, or as text."""

    def __init__(self) -> None:
        super().__init__()
        self.as_json = False
        self.for_systemd = False
        """Whether lines go to systemd's journal."""
        self.worker = ""
        """Name of this worker process; empty: this is no worker."""

    def format(self, record: logging.LogRecord) -> str:
        text = self._text(record)
        return _prefixed(text, record.levelno) if self.for_systemd else text

    def _text(self, record: logging.LogRecord) -> str:
        message = record.getMessage().rstrip("\n")
        stack = getattr(record, _STACK, "")
        if record.exc_info and record.exc_info[0] is not None:
            stack = self.formatException(record.exc_info)
        if not self.as_json:
            who = f"worker {self.worker}: " if self.worker else ""
            moment = "" if self.for_systemd else f"{utc(record.created)} "
            head = f"{moment}{record.levelname} {record.name}: {who}{message}"
            lines = f"{head}\n{stack}".splitlines() if stack else head.splitlines()
            return "\n  ".join(lines)
        fields = {
            "time": utc(record.created),
            "level": record.levelname.lower(),
            "logger": record.name,
            "message": message,
            **{key: getattr(record, key) for key in SUBJECTS if hasattr(record, key)},
        }
        if self.worker:
            fields["worker"] = self.worker
        if stack:
            fields["stack"] = stack.rstrip("\n")
        pairs = [f'"{key}": {quoted(text, MAX_TEXT)}' for key, text in fields.items()]
        return f"{{{', '.join(pairs)}}}"


def _leads_to_systemd() -> bool:
    """Whether standard error is the stream to the journal that systemd has set up (systemd.exec(5))."""
    try:
        found = os.fstat(STDERR)
    except OSError:
        return False
    return os.environ.get("JOURNAL_STREAM") == f"{found.st_dev}:{found.st_ino}"


def _prefixed(text: str, level: int) -> str:
    """Puts the syslog priority of an event before each of its lines: each is an entry of the journal."""
    priority = next((number for least, number in _PRIORITIES if level >= least), 7)
    return "\n".join(f"<{priority}>{line}" for line in text.split("\n"))


def _with_priority(lines: bytes) -> bytes:
    """Puts the syslog priority of errors before printed lines, which are errors in JSON as well."""
    return b"".join(b"<3>%b\n" % line for line in lines.split(b"\n"))


def utc(seconds: float) -> str:
    """Writes wall-clock time as `2026-11-20T13:43:28.123Z`, as the access log does."""
    second, milliseconds = divmod(int(seconds * 1000), 1000)
    return f"{time.strftime('%Y-%m-%dT%H:%M:%S', time.gmtime(second))}.{milliseconds:03d}Z"


def _log_thread_error(args: threading.ExceptHookArgs) -> None:
    name = args.thread.name if args.thread is not None else "unknown"
    _log.error("thread %s ended with an error", name, exc_info=_exc_info(args.exc_value, args.exc_traceback))


def _log_unraisable(unraisable: sys.UnraisableHookArgs) -> None:
    what = unraisable.err_msg or "an error was ignored in"
    _log.error(
        "%s: %r", what, unraisable.object, exc_info=_exc_info(unraisable.exc_value, unraisable.exc_traceback)
    )


def _exc_info(error: BaseException | None, trace: TracebackType | None) -> Any:  # noqa: ANN401
    return None if error is None else (type(error), error, trace)


@final
class _Stream(io.RawIOBase):
    """Standard error for `print` and libraries, which may write a line in several parts."""

    def __init__(self, writer: LineWriter) -> None:
        self._writer = writer
        self._lock = threading.RLock()
        self._unfinished = b""
        self.as_events: Callable[[bytes], bytes] | None = None
        """Makes log events of whole printed lines; None: the lines are written as they are."""

    def write(self, data: ReadableBuffer, /) -> int:
        text = bytes(data)
        with self._lock:
            lines, end, self._unfinished = (self._unfinished + text).rpartition(b"\n")
            if len(self._unfinished) > MAX_UNFINISHED:
                lines, end, self._unfinished = lines + end + self._unfinished, b"\n", b""
            if end:
                self._writer.put(lines + end if self.as_events is None else self.as_events(lines))
        return len(text)

    def end_line(self) -> None:
        with self._lock:
            if self._unfinished:
                self.write(b"\n")

    def writable(self) -> bool:
        return True

    def fileno(self) -> int:
        return STDERR

    def isatty(self) -> bool:
        return os.isatty(STDERR)
