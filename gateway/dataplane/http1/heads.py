"""The heads of requests and responses: the start line and the field section, up to the empty line.

Our own strict grammar checks start lines and the field sections of requests. llhttp (through httptools) reads
every head as well, except one whose field section is in the cache (`read_cached`): it was accepted before.
Response field lines are checked by llhttp only, which is no laxer (tests/dataplane compares both). A head
that two readers could read differently is refused: bare CR or LF, folded lines, control bytes, two Hosts, any
length or coding with two meanings (RFC 9112 6.3, threats S1-S19). llhttp gets whole heads only and never a
body, because httptools can neither pause it nor report where a message ended. Nothing here depends on API
versions, routes or sockets.
"""

from __future__ import annotations

import re
from collections.abc import Iterable
from typing import Final, Protocol, TypeAlias, final
from urllib.parse import unquote_to_bytes

import httptools

from gateway.core.http.message import METHODS, Header
from gateway.dataplane.http1 import names
from gateway.dataplane.http1.fields import (
    BY_LENGTH,
    CHUNKED,
    KEEP_ALIVE_VALUES,
    NO_BODY,
    OWS,
    UNTIL_CLOSE,
    FieldSection,
    RequestFieldSection,
    is_host,
)
from gateway.dataplane.http1.names import NameTable
from gateway.errors import FramingError

HEAD_END: Final = b"\r\n\r\n"

_METHODS: Final = {name.encode(): name for name in METHODS}
"""Methods that are proxied, by their bytes in a request line."""
MAX_RESPONSE_FIELDS: Final = 200
MAX_RESPONSE_HEAD: Final = 64 * 1024
MAX_CACHED_SECTIONS: Final = 8
"""Field sections that are cached per client connection: clients send the same one with every request."""
MAX_CACHED_SECTION_SIZE: Final = 2048
"""The largest field section that is cached, in bytes. A connection caches at most 8 x 2 KiB."""
_MIN_FIELD_SIZE: Final = 4
"""The size of the shortest field line (`a:` and CRLF). The lines of a head are counted only if it is long
enough to exceed the limit."""

_ALLOWED_BYTES: Final = bytes({0x09, 0x0A, 0x0D, *range(0x20, 0x7F), *range(0x80, 0x100)})
_TEXT: Final = rb"[\t\x20-\x7e\x80-\xff]*+"
_FIELDS: Final = rb"(?:[!#$%&'*+.^_`|~0-9A-Za-z-]++:" + _TEXT + rb"\r\n)*+\r\n"
"""Field lines of a token, a colon and text, up to the empty line. Possessive: it never backtracks."""
_FIELD_SECTION: Final = re.compile(rb"\r\n" + _FIELDS)
_STATUS_LINE: Final = re.compile(rb"HTTP/1\.([01]) ([1-5][0-9]{2})(?: (" + _TEXT + rb"))?")
_REQUEST_LINE: Final = re.compile(rb"([A-Z]{3,16}) ([!\"$-\[\]-~]++) HTTP/1\.([01])\r\n")
"""Refuses `#` and `\\` in targets: some servers cut a target at `#`, or read `\\` as `/`."""
_ANY_REQUEST_LINE: Final = re.compile(rb"[A-Z][A-Z-]{0,31} ([!-~]+) HTTP/([0-9])\.([0-9])\r\n")
_ABSOLUTE: Final = re.compile(rb"[Hh][Tt][Tt][Pp][Ss]?://([^/?]*)(.*)")
_BAD_ESCAPE: Final = re.compile(rb"%(?![0-9A-Fa-f]{2})|%2[fF]|%5[cC]|%[01][0-9A-Fa-f]|%7[fF]")
"""A `%` without two hexadecimal digits, or an encoded slash, backslash or control byte (threats P1-P6)."""
_SLASH: Final = 0x2F
_BODILESS: Final = frozenset({204, 304})

Parser: TypeAlias = httptools.HttpRequestParser | httptools.HttpResponseParser


class HeadLimits(Protocol):
    """Bytes of a request head, bytes of one line of it, number of field lines."""

    @property
    def head(self) -> int: ...
    @property
    def line(self) -> int: ...
    @property
    def headers(self) -> int: ...


@final
class RequestReader:
    """Reads the request heads of one client connection; the attributes are those of the last one."""

    method: str
    target: bytes
    """In origin form, or `*`."""
    path: str
    query: str
    host: str = ""
    """As the client wrote it; empty only in HTTP/1.0."""
    minor: int = 1
    """The minor version of HTTP: 0 or 1."""
    close: bool
    """The client will not use this connection again."""
    field_section: RequestFieldSection
    selected: tuple[bytes, ...]

    def __init__(self) -> None:
        self._cached_sections: dict[bytes, RequestFieldSection] = {}

    def read_cached(self, data: bytes, table: NameTable, limits: HeadLimits) -> bool:
        """Read `data` if it is exactly one head whose field section was read before on this connection.

        Most heads are. Then neither the end of the head nor its fields have to be looked for. Raises
        `FramingError`.
        """
        line = _REQUEST_LINE.match(data)
        if line is None or line[1] not in _METHODS or len(data) > limits.line:
            return False
        section = self._cached_sections.get(data[line.end() - 2 :])
        if section is None or section.table is not table:
            return False
        self._combine(line, section)
        return True

    def read(self, head: bytes, table: NameTable, limits: HeadLimits) -> None:
        """Read a whole head, its empty line included. Raises `FramingError` with the status to respond."""
        line = _REQUEST_LINE.match(head)
        if line is None or line[1] not in _METHODS:
            raise _request_line_error(head)
        end = line.end() - 2
        if end > limits.line:
            raise FramingError("line_too_long", 414)
        self._combine(line, self._read_field_section(head, head[end:], table, limits))

    def _combine(self, line: re.Match[bytes], section: RequestFieldSection) -> None:
        """Check a request line together with a field section, and set the attributes.

        Raises `FramingError`.
        """
        method, target, minor = line.groups()
        self.method = _METHODS[method]
        self.field_section = section
        self.selected = section.selected
        self.host = section.host
        if minor == b"1":
            self.minor = 1
            self.close = section.closes
            if not section.host:
                raise FramingError("host")
        else:
            self.minor = 0
            self.close = "keep-alive" not in section.connection_options
            if section.framing == CHUNKED:  # HTTP/1.0 has none, so readers would differ (threats S6)
                raise FramingError("smuggling")
        if target[0] != _SLASH:
            target = self._read_target_form(target)
        self.target = target
        path, _, self.query = target.decode().partition("?")
        if "%" in path or "/." in path:
            _check_path(path.encode())
        self.path = path

    @property
    def fields(self) -> tuple[Header, ...]:
        """The selected fields (`core.http.message.Request`)."""
        return self.field_section.selected_fields

    @property
    def expects_continue(self) -> bool:
        """Whether the client waits for `100 Continue` before it sends its body."""
        return (
            bool(self.field_section.expectation) and self.minor == 1 and self.field_section.framing != NO_BODY
        )

    def _read_field_section(
        self, head: bytes, field_section: bytes, table: NameTable, limits: HeadLimits
    ) -> RequestFieldSection:
        """Read a field section that is not in the cache."""
        if not _FIELD_SECTION.fullmatch(field_section):
            raise FramingError(_field_section_error(head))
        if len(field_section) > limits.line and any(
            len(line) > limits.line for line in field_section.split(b"\r\n")
        ):
            raise FramingError("line_too_long", 431)
        if (
            len(field_section) > _MIN_FIELD_SIZE * limits.headers
            and field_section.count(b"\r\n") - 2 > limits.headers
        ):
            raise FramingError("too_many_headers", 431)
        _check_with_llhttp(httptools.HttpRequestParser(_NO_CALLBACKS), head)
        section = RequestFieldSection(field_section, table)
        if section.framing == NO_BODY and len(field_section) <= MAX_CACHED_SECTION_SIZE:
            if len(self._cached_sections) >= MAX_CACHED_SECTIONS:
                self._cached_sections.clear()
            self._cached_sections[field_section] = section
        return section

    def _read_target_form(self, target: bytes) -> bytes:
        """Read a target that is not in origin form; gives the origin form, or `*` for OPTIONS.

        The authority of an absolute form replaces `Host` (RFC 9112 3.2.2).
        """
        if target == b"*" and self.method == "OPTIONS":
            return target
        absolute = _ABSOLUTE.fullmatch(target)
        if absolute is None or not is_host(absolute[1]):
            raise FramingError("target")
        self.host = absolute[1].decode()
        return absolute[2] if absolute[2][:1] == b"/" else b"/" + absolute[2]


@final
class ResponseReader(FieldSection):
    """Reads the response heads of one backend connection; the attributes are those of the last one.

    Raises `FramingError` for anything that two readers could read differently; the caller reports a
    `Failure`.
    """

    status: int
    line: bytes
    """The status line for the client, without its CRLF: HTTP/1.1, and the reason phrase of the backend."""
    close: bool
    """The backend will not use this connection again."""
    location: list[tuple[bytes, bytes]]

    def read(self, head: bytes, table: NameTable, *, is_head_request: bool) -> None:
        """Read a whole head. `is_head_request`: it responds to HEAD, so no content follows."""
        end = head.find(b"\r")
        text = head[:end]
        line = _status_lines.get(text) or _read_status_line(text)
        if (
            len(head) > _MIN_FIELD_SIZE * MAX_RESPONSE_FIELDS
            and head.count(b"\r\n") - 2 > MAX_RESPONSE_FIELDS
        ):
            raise FramingError("too_many_headers")
        _check_with_llhttp(httptools.HttpResponseParser(_NO_CALLBACKS), head)
        self.status, self.line, minor = line
        self.location = []
        selected: list[bytes] = []
        for name, value in self._select_fields(head, end, table):
            kind = table[name]
            if kind == names.SELECTED:
                selected += (name, value)
            elif kind == names.LENGTH and self._length_value is None:
                self._length_value = value
            elif kind == names.CONNECTION:
                self._connection_values.append(value.strip(OWS))
            elif kind == names.LOCATION:
                self.location.append((name, value.strip(OWS)))
            else:
                self._read_framing_field(kind, value)
        self.selected = tuple(selected)
        if self._connection_values and (self._connection_values != KEEP_ALIVE_VALUES or minor == 0):
            self.connection_options = self._remove_listed_fields()
            self.close = "close" in self.connection_options or (
                minor == 0 and "keep-alive" not in self.connection_options
            )
        else:
            self.close = minor == 0
        self._read_framing(is_head_request=is_head_request)

    def _read_framing(self, *, is_head_request: bool) -> None:
        """Whether there is a body, and how it ends (RFC 9112 6.3)."""
        self.length = self._read_length() if self._length_value is not None else -1
        if self._coding_value is not None and (
            self._length_value is not None or self._coding_value != b"chunked"
        ):
            raise FramingError("transfer_encoding")
        if is_head_request or self.status < 200 or self.status in _BODILESS:
            self.framing = NO_BODY
        elif self._length_value is not None:
            self.framing = BY_LENGTH if self.length else NO_BODY
        elif self._coding_value is not None:
            self.framing = CHUNKED
        else:
            self.framing = UNTIL_CLOSE
            self.close = True


StatusLine: TypeAlias = tuple[int, bytes, int]
"""Status, the line for the client, minor version."""

_status_lines: dict[bytes, StatusLine] = {}
"""Status lines read before. A backend sends a handful; a hostile one may vary its reason phrases, so the
table is bounded."""
_MAX_CACHED_STATUS_LINES: Final = 512
_MAX_CACHED_STATUS_LINE_SIZE: Final = 64
"""Bytes. A line with the longest registered reason phrase has 44, a hostile one up to 64 KiB."""


def _read_status_line(text: bytes) -> StatusLine:
    """Read a status line that is not in the table, without its CRLF. Raises `FramingError`."""
    match = _STATUS_LINE.fullmatch(text)
    if match is None:
        raise FramingError("status_line")
    line = (int(match[2]), b"HTTP/1.1 %b %b" % (match[2], match[3] or b""), int(match[1]))
    if len(_status_lines) < _MAX_CACHED_STATUS_LINES and len(text) <= _MAX_CACHED_STATUS_LINE_SIZE:
        _status_lines[text] = line
    return line


class _NoCallbacks:
    """No callbacks: llhttp only accepts a head or raises."""


_NO_CALLBACKS: Final = _NoCallbacks()


def _check_with_llhttp(parser: Parser, head: bytes) -> None:
    """Let llhttp read a head. Raises `FramingError`.

    httptools raises on an `Upgrade` request; that is ignored, since the upgrade fields are not forwarded.
    """
    try:
        parser.feed_data(head)
    except httptools.HttpParserUpgrade:
        pass
    except httptools.HttpParserError:
        raise FramingError("head") from None


def _request_line_error(head: bytes) -> FramingError:
    """Why a request line is refused, with the status to respond."""
    line = _ANY_REQUEST_LINE.match(head)
    if line is None:
        return FramingError("request_line")
    if line[2] != b"1" or line[3] not in b"01":
        return FramingError("http_version", 505)
    if b"#" in line[1] or b"\\" in line[1]:
        return FramingError("target")
    return FramingError("method", 405)


def _field_section_error(head: bytes) -> str:
    """Why our grammar refuses a field section: a label `reason` of skewgate_client_errors_total."""
    if b"\r\n " in head or b"\r\n\t" in head:
        return "folded_line"
    ends = head.count(b"\r\n")
    if head.count(b"\n") != ends or head.count(b"\r") != ends:
        return "line_end"
    if head.translate(None, _ALLOWED_BYTES):
        return "control_byte"
    return "header_name"


def read_described(
    method: str, target: str, headers: Iterable[Header], table: NameTable, limits: HeadLimits
) -> RequestReader:
    """Read a request that is only described, as a client connection reads it: for explanations.

    `target` and `headers` are ASCII without control bytes. Without `Host` it is a request of HTTP/1.0, which
    needs none. Raises `FramingError` with the status that the gateway would respond.
    """
    lines = [f"{name}: {value}\r\n" for name, value in headers]
    minor = int(any(line[:5].lower() == "host:" for line in lines))
    reader = RequestReader()
    head = f"{method} {target} HTTP/1.{minor}\r\n{''.join(lines)}\r\n"
    reader.read(head.encode("latin-1"), table, limits)
    return reader


def refusal_sentence(refusal: FramingError) -> str:
    """What the gateway does with such a request, for people."""
    return f"the gateway answers {refusal.status} to this request, before any service: {refusal.reason}"


def _check_path(path: bytes) -> None:
    """Check a path with escapes or dots. Raises `FramingError` for one that another reader could read as
    another path (threats P1-P6)."""
    if _BAD_ESCAPE.search(path):
        raise FramingError("path")
    decoded = unquote_to_bytes(path)
    try:
        decoded.decode("utf-8")
    except UnicodeDecodeError:
        raise FramingError("path") from None
    if any(segment.split(b";", 1)[0] in (b".", b"..") for segment in decoded.split(b"/")):
        raise FramingError("path")
