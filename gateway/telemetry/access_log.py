"""The access log: one line per request, as JSON or as text.

    record -> a list of lines -> (every 128 lines or quarter of a second) -> `telemetry.line_writer`

A request never waits for it and never fails because of it (threats L2): what cannot be written is dropped
and counted. What a client wrote is escaped outside printable ASCII and cut (threats O8).
"""

from __future__ import annotations

import asyncio
import json
import time
from collections.abc import Callable
from enum import StrEnum
from typing import Final, Literal, TypeAlias, final

from gateway.errors import StartupError
from gateway.telemetry.line_writer import STDOUT, LineWriter
from gateway.telemetry.request_record import RequestRecord

Format: TypeAlias = Literal["json", "text", "off"]

MAX_VALUE: Final = 1024
"""Characters of one value after escaping (threats O8)."""

BATCH: Final = 128
"""Lines that are written at once."""

FLUSH_INTERVAL: Final = 0.25
"""Seconds that a line waits at most before it is handed to the thread."""

STANDARD_OUTPUT: Final = "-"
"""In place of a path."""

_ELLIPSIS: Final = "..."


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

    def __init__(self, form: Format = "json", path: str = STANDARD_OUTPUT) -> None:
        self._format = form
        self._lines: list[str] = []
        self._timer: asyncio.TimerHandle | None = None
        self._time_text = (0, "")
        """A second since the epoch, and the text for it."""
        self._closed = False
        self._dropped = 0
        self._writer: LineWriter | None = None
        if form != "off":
            try:
                self._writer = LineWriter(STDOUT if path == STANDARD_OUTPUT else path)
            except OSError as error:
                raise StartupError(f"the access log {path!r} cannot be opened: {error.strerror}") from error
            self._writer.start()

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
            self._writer.put("".join(self._lines).encode("ascii", "backslashreplace"))
            self._lines.clear()

    def reopen(self) -> None:
        """For log rotation: lines recorded so far go to the old file, all further ones to a new one."""
        self.flush()
        if self._writer is not None:
            self._writer.reopen()

    def close(self) -> None:
        """Write what is left; waits `line_writer.CLOSE_TIMEOUT` seconds at most."""
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
