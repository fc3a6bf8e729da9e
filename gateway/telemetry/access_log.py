"""The access log: one line a request, as JSON or as text.

    record -> a list of lines -> (every 128 lines or quarter of a second) -> a bounded queue -> a thread

A request never waits for it and never fails by it (hardening, Disk full): what cannot be written is dropped
and counted. The thread does nothing but write, so a full disk or a reader that has stopped reading blocks
only the thread. What a client wrote is escaped outside printable ASCII and cut (hardening O8).
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
from gateway.telemetry.outcome import Outcome

Format: TypeAlias = Literal["json", "text", "off"]

LONGEST: Final = 1024
"""Characters of one value after escaping (hardening O8)."""

BATCH: Final = 128
"""Lines that are written at once."""

TICK: Final = 0.25
"""Seconds that a line waits at most before it is written."""

BACKLOG: Final = 4 * 1024 * 1024
"""Bytes that may wait for the thread; beyond it lines are dropped."""

PATIENCE: Final = 2.0
"""Seconds that `close` waits for the thread."""

STDOUT: Final = "-"

_CUT: Final = "..."
_LINE_END: Final = ord("\n")

_log = logging.getLogger("skewgate.access_log")


def quoted(text: str, longest: int = LONGEST) -> str:
    """`text` as a JSON string of printable ASCII, at most `longest` characters between the quotes; `...`
    marks a cut."""
    line = json.dumps(text).replace("\x7f", "\\u007f")
    if len(line) <= longest + 2:
        return line
    kept = longest - len(_CUT)
    line = json.dumps(text[:kept] + _CUT).replace("\x7f", "\\u007f")
    if len(line) > longest + 2:  # one character can become twelve: a surrogate pair
        line = json.dumps(text[: kept // 12] + _CUT).replace("\x7f", "\\u007f")
    return line


def printable(text: str, longest: int = LONGEST) -> str:
    """The same without the quotes: for texts from outside that go into log lines and messages."""
    return quoted(text, longest)[1:-1]


@final
class AccessLog:
    """Writes to `path` (`-`: standard output). Raises `StartupError` when the file cannot be opened."""

    def __init__(self, form: Format = "json", path: str = STDOUT) -> None:
        self._format = form
        self._path = path
        self._lines: list[str] = []
        self._timer: asyncio.TimerHandle | None = None
        self._second = (0, "")
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

    def record(self, outcome: Outcome) -> None:
        """Note one finished request. Never blocks, never raises."""
        if self._writer is None or self._closed:
            return
        try:
            form = self._as_json if self._format == "json" else self._as_text
            self._lines.append(form(outcome))
            if len(self._lines) >= BATCH:
                self.flush()
            elif self._timer is None:
                self._timer = _later(self.flush)
        except Exception:  # noqa: BLE001 - a request must not fail by its log line
            self._dropped += 1

    def flush(self) -> None:
        """Hand all lines to the thread, or drop them when it is too far behind."""
        if self._timer is not None:
            self._timer.cancel()
            self._timer = None
        if self._lines and self._writer is not None:
            data = "".join(self._lines).encode("ascii", "backslashreplace")
            if not self._writer.put(data):
                self._dropped += len(self._lines)
            self._lines.clear()

    def reopen(self) -> None:
        """After rotation: what was recorded so far goes to the old file, all further lines to a new one."""
        self.flush()
        if self._writer is not None:
            self._writer.reopen()

    def close(self) -> None:
        """Write what is left; waits `PATIENCE` seconds at most."""
        if not self._closed:
            self.flush()
            self._closed = True
            if self._writer is not None:
                self._writer.close()

    # --- lines ----------------------------------------------------------------------------------------------

    def _now(self) -> str:
        """Wall-clock time as `2026-11-20T13:43:28.123Z`; the part up to the seconds is made once a second."""
        now = time.time()
        second = int(now)
        if second != self._second[0]:
            self._second = (second, time.strftime("%Y-%m-%dT%H:%M:%S", time.gmtime(second)))
        return f"{self._second[1]}.{int((now - second) * 1000):03d}Z"

    def _as_json(self, o: Outcome) -> str:
        return (
            f'{{"time": "{self._now()}", "client": {quoted(o.client)}, "method": {quoted(o.method)}, '
            f'"target": {quoted(o.target)}, "status": {o.status}, "service": {quoted(o.service)}, '
            f'"backend": {quoted(o.backend)}, "ask": {_word(o.ask)}, "outcome": {_word(o.verdict)}, '
            f'"version": {quoted(o.version)}, "attempts": {o.attempts}, "seconds": {o.seconds:.6f}, '
            f'"backend_seconds": {f"{o.backend_seconds:.6f}" if o.backend_seconds >= 0 else "null"}, '
            f'"bytes": {o.bytes_out}, "error": {quoted(o.error)}}}\n'
        )

    def _as_text(self, o: Outcome) -> str:
        ask = o.ask.value if o.ask is not None else "-"
        outcome = o.verdict.value if o.verdict is not None else "-"
        return (
            f"{self._now()} {printable(o.client) or '-'} {quoted(o.method + ' ' + o.target)} {o.status} "
            f"{printable(o.service) or '-'}/{printable(o.backend)} {ask} {outcome} "
            f"{printable(o.version) or '-'} attempts={o.attempts} seconds={o.seconds:.6f} "
            f"bytes={o.bytes_out} error={printable(o.error) or '-'}\n"
        )


def _later(flush: Callable[[], None]) -> asyncio.TimerHandle | None:
    """Call `flush` after a tick; without a running loop the number of lines alone counts."""
    try:
        return asyncio.get_running_loop().call_later(TICK, flush)
    except RuntimeError:
        return None


def _word(word: StrEnum | None) -> str:
    return "null" if word is None else f'"{word.value}"'


@final
class _Writer:
    """The thread that writes, and what waits for it. The methods below `close` run in the thread."""

    def __init__(self, path: str) -> None:
        self._path = path
        self._fd = _open(path)
        self._news = threading.Condition()
        self._queue: list[bytes | None] = []
        """Whole lines; None: from here on into a new file."""
        self._waiting = 0
        self._stopping = False
        self._torn = False
        self._thread: threading.Thread | None = None
        self.dropped = 0

    def put(self, data: bytes) -> bool:
        """Take whole lines; False when too much is waiting already."""
        with self._news:
            if self._waiting + len(data) > BACKLOG:
                return False
            self._waiting += len(data)
            self._queue.append(data)
            self._news.notify()
        if (
            self._thread is None
        ):  # not before the first line: a process that forks first must not own a thread
            self._thread = threading.Thread(target=self._run, name="skewgate-access-log", daemon=True)
            self._thread.start()
        return True

    def reopen(self) -> None:
        if self._thread is None:
            self._change_file()
        else:
            with self._news:
                self._queue.append(None)
                self._news.notify()

    def close(self) -> None:
        with self._news:
            self._stopping = True
            self._news.notify()
        if self._thread is not None:
            self._thread.join(PATIENCE)
            if (
                self._thread.is_alive()
            ):  # it keeps its descriptor: closing it under a write could hit another file
                return
        if self._path != STDOUT:
            os.close(self._fd)

    def _run(self) -> None:
        """All that waits is written at once: beside a busy event loop the thread gets few turns."""
        while True:
            with self._news:
                while not (self._queue or self._stopping):
                    self._news.wait()
                if not self._queue:
                    return
                queue, self._queue = self._queue, []
            for changing, pieces in groupby(queue, lambda piece: piece is None):
                data = b"".join(filter(None, pieces))
                self._write(data)
                with self._news:
                    self._waiting -= len(data)
                if changing:
                    self._change_file()

    def _write(self, data: bytes) -> None:
        """Write whole lines; after one that was cut short the next starts on a line of its own."""
        left = memoryview(b"\n" + data if self._torn and data else data)
        begun = self._torn
        while left:
            try:
                written = os.write(self._fd, left)
            except OSError as error:
                if error.errno == errno.EAGAIN:  # a pipe that somebody made non-blocking
                    writable = select.select((), (self._fd,), (), PATIENCE / 2)[1]
                    if writable or not self._stopping:
                        continue
                self._torn = begun
                self.dropped += bytes(left).count(b"\n") - (left[0] == _LINE_END)
                return
            begun = left[written - 1] != _LINE_END
            left = left[written:]
        self._torn = begun

    def _change_file(self) -> None:
        if self._path == STDOUT:
            return
        try:
            fresh = _open(self._path)
        except OSError as error:
            _log.warning("the access log stays as it is: %s cannot be opened: %s", self._path, error.strerror)
            return
        os.close(self._fd)
        self._fd = fresh
        self._torn = False


def _open(path: str) -> int:
    """A descriptor to append to. Line order is the kernel's business (`O_APPEND`), also with several
    processes."""
    if path == STDOUT:
        return 1
    return os.open(Path(path), os.O_WRONLY | os.O_CREAT | os.O_APPEND | os.O_CLOEXEC, 0o640)
