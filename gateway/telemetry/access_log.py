"""The access log: one line per request, as JSON or as text.

    record -> a list -> (32 of them) lines -> (512 of them, or a quarter of a second) -> `line_writer`

A request never waits for the log and never fails because of it (threats L2): lines that cannot be written are
dropped and counted. Text of a client is escaped outside printable ASCII and cut (threats O8). Two parts of a
line (sender and result) repeat so often that they are cached as text.
"""

from __future__ import annotations

import asyncio
import re
import time
from collections.abc import Callable
from json.encoder import encode_basestring_ascii as _escaped
from typing import Final, Literal, TypeAlias, TypeVar, final

from gateway.core.decision.decision import EXECUTED, NegotiationResult
from gateway.core.dialect import RequestedKind
from gateway.core.http.request_ids import is_plain_id
from gateway.errors import StartupError
from gateway.telemetry.line_writer import STDOUT, LineWriter
from gateway.telemetry.request_record import RequestRecord
from gateway.telemetry.trace_context import trace_digits
from gateway.tls.values import ClientCertificate

_Sender: TypeAlias = tuple[str, str, str, bytes]
"""Cache key of a log line's first part: client, method, host and user agent of a request."""

_Ending: TypeAlias = tuple[int, str, str, int, str, RequestedKind | None, str, str, NegotiationResult | None]
"""Cache key of a log line's last part: status, service, backend, attempts, reason, kind of version requested,
version, negotiated version, and the result."""

Format: TypeAlias = Literal["json", "text", "off"]

Query: TypeAlias = Literal["redact", "keep"]
"""Setting for the values in a logged URL's query: replaced by `*`, or written as they are."""

MAX_VALUE: Final = 1024
"""Maximum characters of one logged value after escaping (threats O8)."""

FORMATTED_AT_ONCE: Final = 32
"""Number of records formatted together: a third faster than one by one, in a tenth of a millisecond."""

BATCH: Final = 512
"""Number of log lines written together: waking the writer's thread costs as much as some thirty lines."""

FLUSH_INTERVAL: Final = 0.25
"""Maximum seconds until a log line is handed to the thread that writes it."""

STANDARD_OUTPUT: Final = "-"

MAX_REMEMBERED: Final = 2048
"""Maximum cached parts of log lines, for each kind of part: more than a gateway has at a time."""

MAX_REMEMBERED_LENGTH: Final = 480
"""Maximum characters of a cached part of a log line: all caches take at most 4 MB whatever clients send."""

_LONGEST_ESCAPE: Final = 12
"""Maximum characters of one escaped character: two escapes, a surrogate pair."""

_NEVER_CUT: Final = MAX_VALUE // _LONGEST_ESCAPE
"""Length up to which `quoted` cuts no text, so that it need not be called."""

_ELLIPSIS: Final = "..."

_is_word: Final = re.compile(r"(?!-$)[!#-<>-\[\]-~]+").fullmatch
"""Matches text that needs no quotes in a log line: no blank, no `=`, not `-` alone (which means none)."""

_JSON_SENDER: Final = '"client": %s, "method": %s, "host": %s, "user_agent": %s, "target": '
_JSON_ENDING: Final = (
    '"status": %d, "service": %s, "backend": "%s", "attempts": %d, "requested": %s, "version": %s, '
    '"served": %s, "result": %s, "reason": %s'
)
_TEXT_ENDING: Final = (
    "status=%d service=%s backend=%s attempts=%d requested=%s version=%s served=%s result=%s reason=%s"
)

# Numbers by `%`: in an f-string the compiled build calls `str.format` for a width, three times as slow.
_TIME: Final = "%s.%03dZ"
_JSON_NUMBERS: Final = '"seconds": %.6f, "backend_seconds": %.6f, "bytes_in": %d, "bytes_out": %d'
_JSON_UNANSWERED: Final = '"seconds": %.6f, "backend_seconds": null, "bytes_in": %d, "bytes_out": %d'
_TEXT_NUMBERS: Final = "seconds=%.6f backend_seconds=%.6f bytes_in=%d bytes_out=%d"
_TEXT_UNANSWERED: Final = "seconds=%.6f backend_seconds=- bytes_in=%d bytes_out=%d"

_THREE_DIGITS: Final = [f"{number:03}" for number in range(1000)]
_LOW: Final = 1e-6
_HIGH: Final = 1 - _LOW
"""Bounds of a remainder of microseconds, beyond which two ways to round them could differ."""

REDACTED: Final = "*"


def quoted(text: str, limit: int = MAX_VALUE) -> str:
    """Writes `text` as a JSON string of printable ASCII; `...` ends one cut to `limit` characters."""
    value = _escaped(text)
    if len(value) <= limit + 2:
        return value
    length = limit - len(_ELLIPSIS)
    value = _escaped(text[:length] + _ELLIPSIS)
    if len(value) > limit + 2:
        value = _escaped(text[: length // _LONGEST_ESCAPE] + _ELLIPSIS)
    return value


def printable(text: str, limit: int = MAX_VALUE) -> str:
    """Escapes text from outside for a log line or message: as `quoted`, without the quotes."""
    return quoted(text, limit)[1:-1]


@final
class AccessLog:
    """The access log, written to `path` (`-`: standard output). Raises `StartupError` if the file cannot be
    opened. docs/logs.md explains the fields of a line."""

    def __init__(self, form: Format = "json", path: str = STANDARD_OUTPUT, query: Query = "redact") -> None:
        self._format = form
        self._records: list[tuple[float, RequestRecord]] = []
        """Request records not formatted yet, each with the time at which its request ended."""
        self._lines: list[str] = []
        self._timer: asyncio.TimerHandle | None = None
        self._time = self._second = -1
        """Times of the cached texts since the epoch: in ms (`_time_text`), in seconds (`_second_text`)."""
        self._time_text = self._second_text = ""
        self._redacts = query == "redact"
        self._senders: dict[_Sender, str] = {}
        """Cached first parts of log lines, from client to target."""
        self._endings: dict[_Ending, str] = {}
        """Cached last parts of log lines, from status to reason."""
        self._queries: dict[str, str] = {}
        self._closed = False
        self._dropped = 0
        self._writer: LineWriter | None = None
        if form != "off":
            try:
                self._writer = LineWriter(STDOUT if path == STANDARD_OUTPUT else path)
            except OSError as error:
                raise StartupError(f"cannot open the access log {path!r}: {error.strerror}") from error
            self._writer.start()

    @property
    def dropped(self) -> int:
        return self._dropped + (self._writer.dropped if self._writer else 0)

    def record(self, request: RequestRecord) -> None:
        """Logs one finished request. Never blocks, never raises."""
        if self._writer is None or self._closed:
            return
        records = self._records
        records.append((time.time(), request))
        if len(records) >= FORMATTED_AT_ONCE:
            self._format_records()
            if len(self._lines) >= BATCH:
                self.flush()
        elif self._timer is None:
            self._timer = _call_later(self.flush)

    def flush(self) -> None:
        """Hands all log lines to the thread that writes them, or drops them if it is too far behind."""
        if self._timer is not None:
            self._timer.cancel()
            self._timer = None
        self._format_records()
        if self._lines and self._writer is not None:
            self._writer.put("".join(self._lines).encode("ascii", "backslashreplace"))
            self._lines.clear()

    def reopen(self) -> None:
        """Opens the access log's file again for log rotation, after the lines logged so far."""
        self.flush()
        if self._writer is not None:
            self._writer.reopen()

    def close(self) -> None:
        """Closes the log: writes what is left, for at most `line_writer.CLOSE_TIMEOUT` seconds."""
        if not self._closed:
            self.flush()
            self._closed = True
            if self._writer is not None:
                self._writer.close()

    def _format_records(self) -> None:
        """Formats all waiting records as lines. Never raises: no request may fail because of a log line."""
        format_line = self._as_json if self._format == "json" else self._as_text
        for ended_at, request in self._records:
            try:
                self._lines.append(format_line(ended_at, request))
            except Exception:  # noqa: BLE001 - a bug costs this line
                self._dropped += 1
        self._records.clear()

    def _time_of(self, seconds: float) -> str:
        """Writes wall-clock time as `2026-11-20T13:43:28.123Z`, formatted once per millisecond."""
        now = int(seconds * 1000)
        if now != self._time:
            second, milliseconds = divmod(now, 1000)
            if second != self._second:
                self._second = second
                self._second_text = time.strftime("%Y-%m-%dT%H:%M:%S", time.gmtime(second))
            self._time, self._time_text = now, _TIME % (self._second_text, milliseconds)
        return self._time_text

    def _as_json(self, ended_at: float, r: RequestRecord) -> str:
        head, peer = r.head, r.peer
        kind, version, negotiated = r.requested, r.version, r.negotiated
        ending = (r.status, r.service, r.backend, r.attempts, r.reason, kind, version, negotiated, r.result)
        sender = (peer.client_address(head), r.method, head.host, head.user_agent)
        target, request_id, response_id = head.target.decode(), r.request_id, r.response_id
        if self._redacts and "?" in target:
            target = self._redacted(target)
        target_text = _escaped(target) if len(target) <= _NEVER_CUT else quoted(target)
        request_id_text = "null"
        if request_id:
            request_id_text = _escaped(request_id) if len(request_id) <= _NEVER_CUT else quoted(request_id)
        # What is well-formed has nothing to escape.
        response_id_text = f'"{response_id.decode()}"' if is_plain_id(response_id) else "null"
        trace_id = trace_digits(r.traceparent or head.trace)
        trace_id_text = f'"{trace_id}"' if trace_id else "null"
        certificate = peer.certificate
        shown = f', "client_name": "{r.client_name}"' if r.client_name else ""  # nothing to escape
        if certificate is not None:
            shown += _certificate_json(certificate)
        return (
            f'{{"time": "{self._time_of(ended_at)}", {self._senders.get(sender) or self._new_sender(sender)}'
            f"{target_text}, {self._endings.get(ending) or self._new_ending(ending)}, {_json_numbers(r)}, "
            f'"request_id": {request_id_text}, "response_request_id": {response_id_text}, '
            f'"trace_id": {trace_id_text}{shown}}}\n'
        )

    def _as_text(self, ended_at: float, r: RequestRecord) -> str:
        head, peer = r.head, r.peer
        kind, version, negotiated = r.requested, r.version, r.negotiated
        ending = (r.status, r.service, r.backend, r.attempts, r.reason, kind, version, negotiated, r.result)
        target = head.target.decode()
        if self._redacts and "?" in target:
            target = self._redacted(target)
        certificate = peer.certificate
        shown = f" client_name={_word(r.client_name)}" if r.client_name else ""
        if certificate is not None:
            shown += _certificate_text(certificate)
        return (
            f"{self._time_of(ended_at)} client={_word(peer.client_address(head))} method={_word(r.method)} "
            f"host={_word(head.host)} target={quoted(target)} "
            f"{self._endings.get(ending) or self._new_ending(ending)} "
            f"{_numbers(r, _TEXT_NUMBERS, _TEXT_UNANSWERED)} "
            f"request_id={_word(r.request_id)} response_request_id={_word(r.response_request_id)} "
            f"trace_id={_word(r.trace_id)} user_agent={quoted(_agent(head.user_agent))}{shown}\n"
        )

    def _redacted(self, target: str) -> str:
        path, _, query = target.partition("?")
        shown = self._queries.get(query)
        if shown is None:
            shown = redacted(query)
            if len(query) <= MAX_REMEMBERED_LENGTH:
                _remember(self._queries, query, shown)
        return f"{path}?{shown}"

    def _new_sender(self, sender: _Sender) -> str:
        """Formats the first part of a log line, from client to target, and caches it."""
        client, method, host, user_agent = sender
        names = (client, method, host, _agent(user_agent))
        return _remember(self._senders, sender, _JSON_SENDER % tuple(map(_json_text, names)))

    def _new_ending(self, ending: _Ending) -> str:
        """Formats the last part of a log line, from status to reason, and caches it."""
        status, service, backend, attempts, reason, requested, version, negotiated, result = ending
        served = version if status and result in EXECUTED else ""
        names = (requested, negotiated or version, served, result, reason)
        as_json = self._format == "json"
        write = _json_text if as_json else _word
        texts = (status, write(service), printable(backend), attempts, *(write(each or "") for each in names))
        return _remember(self._endings, ending, (_JSON_ENDING if as_json else _TEXT_ENDING) % texts)


def redacted(query: str) -> str:
    """Replaces each value in a URL's query by `*`. A part without a name is a value."""
    shown = []
    for part in query.split("&"):
        name, equals, _ = part.partition("=")
        shown.append(f"{name}={REDACTED}" if equals else REDACTED if part else "")
    return "&".join(shown)


def _json_numbers(r: RequestRecord) -> str:
    """Writes seconds and bytes as `_JSON_NUMBERS`, for nearly all requests from a table: the compiled build
    needs half as long as for `%.6f`."""
    total, waited = r.seconds * 1e6 + 0.5, r.backend_seconds * 1e6 + 0.5
    a, b = int(total), int(waited)
    if 0 < b <= a < 1_000_000 and _LOW < total - a < _HIGH and _LOW < waited - b < _HIGH:
        return (
            f'"seconds": 0.{_THREE_DIGITS[a // 1000]}{_THREE_DIGITS[a % 1000]}, '
            f'"backend_seconds": 0.{_THREE_DIGITS[b // 1000]}{_THREE_DIGITS[b % 1000]}, '
            f'"bytes_in": {r.bytes_in}, "bytes_out": {r.bytes_out}'
        )
    return _numbers(r, _JSON_NUMBERS, _JSON_UNANSWERED)


def _numbers(r: RequestRecord, answered: str, unanswered: str) -> str:
    """Writes seconds and bytes, by one of two templates: whether a backend has answered or none."""
    if r.backend_seconds >= 0:
        return answered % (r.seconds, r.backend_seconds, r.bytes_in, r.bytes_out)
    return unanswered % (r.seconds, r.bytes_in, r.bytes_out)


def _agent(user_agent: bytes) -> str:
    return user_agent.strip(b" \t").decode("latin-1")


def _json_text(text: str) -> str:
    return quoted(text) if text else "null"


def _word(text: str) -> str:
    """Writes a value for a text log line, in quotes where it would be ambiguous without."""
    if not text:
        return "-"
    return text if len(text) <= MAX_VALUE and _is_word(text) else quoted(text)


_Key = TypeVar("_Key")


def _remember(known: dict[_Key, str], key: _Key, text: str) -> str:
    if len(text) <= MAX_REMEMBERED_LENGTH:
        if len(known) >= MAX_REMEMBERED:
            known.clear()
        known[key] = text
    return text


def _certificate_json(certificate: ClientCertificate) -> str:
    subject, fingerprint = quoted(certificate.subject), certificate.fingerprint
    return f', "client_subject": {subject}, "client_fingerprint": "{fingerprint}"'


def _certificate_text(certificate: ClientCertificate) -> str:
    return f" client_subject={quoted(certificate.subject)} client_fingerprint={certificate.fingerprint}"


def _call_later(flush: Callable[[], None]) -> asyncio.TimerHandle | None:
    """Schedules a flush of log lines after `FLUSH_INTERVAL`; None: no event loop runs to do it."""
    try:
        return asyncio.get_running_loop().call_later(FLUSH_INTERVAL, flush)
    except RuntimeError:
        return None
