"""The access log: one line per request, as JSON or as text.

    record -> a list of lines -> (every 128 lines or quarter of a second) -> a bounded queue -> a thread

A request never waits for it and never fails because of it (threats L2): what cannot be written is dropped
and counted. The thread does nothing but write, so a full disk or a reader that has stopped reading blocks
only the thread. What a client wrote is escaped outside printable ASCII and cut (threats O8).
"""

from __future__ import annotations

import asyncio
import errno
import json
import logging
import os
import select
import threading
import time
from collections.abc import Callable
from enum import StrEnum
from itertools import groupby
from pathlib import Path
from typing import Final, Literal, TypeAlias, final

from gateway.errors import StartupError
from gateway.telemetry.request_record import RequestRecord

Format: TypeAlias = Literal["json", "text", "off"]

MAX_VALUE: Final = 1024
"""Characters of one value after escaping (threats O8)."""

BATCH: Final = 128
"""Lines that are written at once."""

FLUSH_INTERVAL: Final = 0.25
"""Seconds that a line waits at most before it is handed to the thread."""

MAX_BACKLOG: Final = 4 * 1024 * 1024
"""Bytes that may wait for the thread; beyond it lines are dropped."""

CLOSE_TIMEOUT: Final = 2.0
"""Seconds that `close` waits for the thread."""

STDOUT: Final = "-"

_ELLIPSIS: Final = "..."
_LINE_END: Final = ord("\n")

_log = logging.getLogger("skewgate.access_log")


def quoted(text: str, limit: int = MAX_VALUE) -> str:
    """`text` as a JSON string of printable ASCII, at most `limit` characters between the quotes; `...` shows
    that it was cut."""
    value = json.dumps(text).replace("\x7f", "\\u007f")
    if len(value) <= limit + 2:
        return value
    length = limit - len(_ELLIPSIS)
    value = json.dumps(text[:length] + _ELLIPSIS).replace("\x7f", "\\u007f")
    if len(value) > limit + 2:  # one character can become twelve: a surrogate pair
        value = json.dumps(text[: length // 12] + _ELLIPSIS).replace("\x7f", "\\u007f")
    return value


def printable(text: str, limit: int = MAX_VALUE) -> str:
    """The same without the quotes: for texts from outside that go into log lines and messages."""
    return quoted(text, limit)[1:-1]


@final
class AccessLog:
    """Writes to `path` (`-`: standard output). Raises `StartupError` if the file cannot be opened."""

    def __init__(self, form: Format = "json", path: str = STDOUT) -> None:
        self._format = form
        self._path = path
        self._lines: list[str] = []
        self._timer: asyncio.TimerHandle | None = None
        self._time_text = (0, "")
        """A second since the epoch, and the text for it."""
        self._closed = False
        self._dropped = 0
        self._writer: _Writer | None = None
        if form != "off":
            try:
                self._writer = _Writer(path)
            except OSError as error:
                raise StartupError(f"the access log {path!r} cannot be opened: {error.strerror}") from error

    @property
    def dropped(self) -> int:
        """Lines that were lost so far."""
        return self._dropped + (self._writer.dropped if self._writer else 0)

    def record(self, request: RequestRecord) -> None:
        """Take one finished request. Never blocks, never raises."""
        if self._writer is None or self._closed:
            return
        try:
            format_line = self._as_json if self._format == "json" else self._as_text
            self._lines.append(format_line(request))
            if len(self._lines) >= BATCH:
                self.flush()
            elif self._timer is None:
                self._timer = _call_later(self.flush)
        except Exception:  # noqa: BLE001 - a request must not fail because of its log line
            self._dropped += 1

    def flush(self) -> None:
        """Hand all lines to the thread, or drop them if it is too far behind."""
        if self._timer is not None:
            self._timer.cancel()
            self._timer = None
        if self._lines and self._writer is not None:
            data = "".join(self._lines).encode("ascii", "backslashreplace")
            if not self._writer.put(data):
                self._dropped += len(self._lines)
            self._lines.clear()

    def reopen(self) -> None:
        """For log rotation: lines recorded so far go to the old file, all further ones to a new one."""
        self.flush()
        if self._writer is not None:
            self._writer.reopen()

    def close(self) -> None:
        """Write what is left; waits `CLOSE_TIMEOUT` seconds at most."""
        if not self._closed:
            self.flush()
            self._closed = True
            if self._writer is not None:
                self._writer.close()

    # --- lines ----------------------------------------------------------------------------------------------

    def _now(self) -> str:
        """Wall-clock time as `2026-11-20T13:43:28.123Z`. The part up to the seconds is formatted once per
        second."""
        now = time.time()
        second = int(now)
        if second != self._time_text[0]:
            self._time_text = (second, time.strftime("%Y-%m-%dT%H:%M:%S", time.gmtime(second)))
        return f"{self._time_text[1]}.{int((now - second) * 1000):03d}Z"

    def _as_json(self, r: RequestRecord) -> str:
        backend_seconds = f"{r.backend_seconds:.6f}" if r.backend_seconds >= 0 else "null"
        request_id = f'"{r.request_id}"' if r.request_id else "null"  # letters, digits and hyphens only
        return (
            f'{{"time": "{self._now()}", "client": {quoted(r.client)}, "method": {quoted(r.method)}, '
            f'"target": {quoted(r.target)}, "status": {r.status}, "service": {quoted(r.service)}, '
            f'"backend": {quoted(r.backend)}, "requested": {_json(r.requested)}, '
            f'"result": {_json(r.result)}, "version": {quoted(r.version)}, "attempts": {r.attempts}, '
            f'"seconds": {r.seconds:.6f}, "backend_seconds": {backend_seconds}, '
            f'"bytes": {r.bytes_out}, "request_id": {request_id}, "reason": {quoted(r.reason)}}}\n'
        )

    def _as_text(self, r: RequestRecord) -> str:
        requested = r.requested.value if r.requested is not None else "-"
        result = r.result.value if r.result is not None else "-"
        return (
            f"{self._now()} {printable(r.client) or '-'} {quoted(r.method + ' ' + r.target)} {r.status} "
            f"{printable(r.service) or '-'}/{printable(r.backend)} {requested} {result} "
            f"{printable(r.version) or '-'} attempts={r.attempts} seconds={r.seconds:.6f} "
            f"bytes={r.bytes_out} request_id={r.request_id or '-'} reason={printable(r.reason) or '-'}\n"
        )


def _call_later(flush: Callable[[], None]) -> asyncio.TimerHandle | None:
    """Call `flush` after `FLUSH_INTERVAL`. Without a running loop only full batches are flushed."""
    try:
        return asyncio.get_running_loop().call_later(FLUSH_INTERVAL, flush)
    except RuntimeError:
        return None


def _json(value: StrEnum | None) -> str:
    return "null" if value is None else f'"{value.value}"'


@final
class _Writer:
    """The thread that writes, and its queue. The methods below `close` run in the thread."""

    def __init__(self, path: str) -> None:
        self._path = path
        self._fd = _open(path)
        self._changed = threading.Condition()
        self._queue: list[bytes | None] = []
        """Whole lines; None: what follows goes to a new file."""
        self._waiting = 0
        """Bytes in the queue."""
        self._stopping = False
        self._torn = False
        """True: the last line in the file was cut short."""
        self._thread: threading.Thread | None = None
        self.dropped = 0

    def put(self, data: bytes) -> bool:
        """Take whole lines; False: too much is waiting already."""
        with self._changed:
            if self._waiting + len(data) > MAX_BACKLOG:
                return False
            self._waiting += len(data)
            self._queue.append(data)
            self._changed.notify()
        if self._thread is None:
            # Not before the first line: a process that still forks must not own a thread.
            self._thread = threading.Thread(target=self._run, name="skewgate-access-log", daemon=True)
            self._thread.start()
        return True

    def reopen(self) -> None:
        if self._thread is None:
            self._change_file()
        else:
            with self._changed:
                self._queue.append(None)
                self._changed.notify()

    def close(self) -> None:
        with self._changed:
            self._stopping = True
            self._changed.notify()
        if self._thread is not None:
            self._thread.join(CLOSE_TIMEOUT)
            if self._thread.is_alive():
                # It keeps its descriptor: closed during a write, the number could become another file's.
                return
        if self._path != STDOUT:
            os.close(self._fd)

    def _run(self) -> None:
        """Writes all that waits at once: beside a busy event loop the thread seldom runs."""
        while True:
            with self._changed:
                while not (self._queue or self._stopping):
                    self._changed.wait()
                if not self._queue:
                    return
                queue, self._queue = self._queue, []
            for is_change, items in groupby(queue, lambda item: item is None):
                data = b"".join(filter(None, items))
                self._write(data)
                with self._changed:
                    self._waiting -= len(data)
                if is_change:
                    self._change_file()

    def _write(self, data: bytes) -> None:
        """Write whole lines. After a line that was cut short, the next one starts on a line of its own."""
        left = memoryview(b"\n" + data if self._torn and data else data)
        torn = self._torn
        while left:
            try:
                written = os.write(self._fd, left)
            except OSError as error:
                if error.errno == errno.EAGAIN:  # a pipe that another process made non-blocking
                    writable = select.select((), (self._fd,), (), CLOSE_TIMEOUT / 2)[1]
                    if writable or not self._stopping:
                        continue
                self._torn = torn
                self.dropped += bytes(left).count(b"\n") - (left[0] == _LINE_END)
                return
            torn = left[written - 1] != _LINE_END
            left = left[written:]
        self._torn = torn

    def _change_file(self) -> None:
        if self._path == STDOUT:
            return
        try:
            fd = _open(self._path)
        except OSError as error:
            _log.warning(
                "%s cannot be opened, the access log goes on in the old file: %s", self._path, error.strerror
            )
            return
        os.close(self._fd)
        self._fd = fd
        self._torn = False


def _open(path: str) -> int:
    """A descriptor to append to. With `O_APPEND` the kernel orders the lines, also those of several
    processes."""
    if path == STDOUT:
        return 1
    return os.open(Path(path), os.O_WRONLY | os.O_CREAT | os.O_APPEND | os.O_CLOEXEC, 0o640)
