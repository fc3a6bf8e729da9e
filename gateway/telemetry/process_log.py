"""The process log: everything that a running gateway writes to standard error, without ever waiting for it.

    logging  ->  ProcessLog  ─┐
    print, warnings,          ├─►  LineWriter  ->  standard error
    tracebacks  ->  sys.stderr┘

Python's own `sys.stderr` is replaced, because a warning or the traceback of a thread would block the event
loop as a log line does (threads R-B8). Only `run` installs it: the other commands write directly.
"""

from __future__ import annotations

import io
import logging
import os
import sys
import threading
from typing import TYPE_CHECKING, Final, final

from gateway.telemetry.line_writer import STDERR, LineWriter

if TYPE_CHECKING:
    from _typeshed import ReadableBuffer

FORMAT: Final = "%(asctime)s %(levelname)s %(name)s: %(message)s"

MAX_UNFINISHED: Final = 65_536
"""Bytes of a line that has no end; then it gets one."""


@final
class ProcessLog(logging.Handler):
    """A handler for the root logger. It is closed by `logging.shutdown` when the process ends, which waits a
    bounded time for the reader."""

    def __init__(self) -> None:
        super().__init__()
        self.setFormatter(logging.Formatter(FORMAT))
        self._encoding = getattr(sys.stderr, "encoding", None) or "utf-8"
        self._writer = LineWriter(STDERR, self._lost_line)

    @property
    def dropped(self) -> int:
        """Lines that were lost so far."""
        return self._writer.dropped

    def install(self) -> None:
        """From here on nothing in this process writes to standard error directly."""
        logging.basicConfig(level=logging.INFO, handlers=[self])
        sys.stderr = io.TextIOWrapper(
            _Stream(self._writer), encoding=self._encoding, errors="backslashreplace", write_through=True
        )

    def start(self) -> None:
        """Write. Till then lines wait, because a process that still forks must not own a thread."""
        self._writer.start()

    def emit(self, record: logging.LogRecord) -> None:
        try:
            self._writer.put(self._encoded(record))
        except Exception:  # noqa: BLE001 - as every handler: a line with wrong arguments must not be an error
            self.handleError(record)

    def close(self) -> None:
        self._writer.close()
        super().close()

    def _lost_line(self, text: str) -> bytes:
        return self._encoded(
            logging.LogRecord("skewgate.log", logging.WARNING, __file__, 0, text, None, None)
        )

    def _encoded(self, record: logging.LogRecord) -> bytes:
        return f"{self.format(record)}\n".encode(self._encoding, "backslashreplace")


@final
class _Stream(io.RawIOBase):
    """Standard error for `print`, warnings and tracebacks, which write a line in several parts."""

    def __init__(self, writer: LineWriter) -> None:
        self._writer = writer
        self._lock = threading.RLock()
        self._unfinished = b""

    def write(self, data: ReadableBuffer, /) -> int:
        text = bytes(data)
        with self._lock:
            lines, end, self._unfinished = (self._unfinished + text).rpartition(b"\n")
            if len(self._unfinished) > MAX_UNFINISHED:
                lines, end, self._unfinished = lines + end + self._unfinished, b"\n", b""
            if end:
                self._writer.put(lines + end)
        return len(text)

    def writable(self) -> bool:
        return True

    def fileno(self) -> int:
        return STDERR

    def isatty(self) -> bool:
        return os.isatty(STDERR)
