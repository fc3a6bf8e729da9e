"""The heads of requests and responses: the start line and the field section, up to the empty line.

Readers give values: a head never changes once it is made, and no head shows anything of the one before.

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
from collections.abc import Iterable, Sequence
from typing import Final, Protocol, TypeAlias, final
from urllib.parse import unquote_to_bytes

import httptools

from gateway.core.http.message import METHOD, METHODS, NOT_PROXIED, Header
from gateway.dataplane.http1 import names
from gateway.dataplane.http1.fields import (
    BY_LENGTH,
    CHUNKED,
    KEEP_ALIVE_VALUES,
    NO_BODY,
    OWS,
    UNTIL_CLOSE,
    RequestFieldSection,
    is_host,
    normalized_fields,
    read_length,
    without_listed_fields,
)
from gateway.dataplane.http1.names import NameTable
from gateway.errors import FramingError

HEAD_END: Final = b"\r\n\r\n"

_METHODS: Final = {name.encode(): name for name in METHODS}
"""Methods that servers know, by their bytes in a request line."""
_NOT_PROXIED: Final = frozenset(name.encode() for name in NOT_PROXIED)
MAX_RESPONSE_FIELDS: Final = 200
MAX_RESPONSE_HEAD: Final = 64 * 1024
MAX_CACHED_SECTIONS: Final = 8
"""Field sections that are cached per client connection: clients send the same one with every request."""
MAX_CACHED_SECTION_SIZE: Final = 2048
"""The largest field section that is cached, in bytes. A connection caches at most 8 x 2 KiB."""
_MIN_FIELD_SIZE: Final = 4
"""The size of the shortest field line (`a:` and CRLF). The lines of a head are counted only if it is long
enough to exceed the limit."""

_MAX_FORWARDS_DIGITS: Final = 9
MAX_FORWARDS: Final = 10**_MAX_FORWARDS_DIGITS - 1
"""The highest `Max-Forwards` that is sent on."""

_ALLOWED_BYTES: Final = bytes({0x09, 0x0A, 0x0D, *range(0x20, 0x7F), *range(0x80, 0x100)})
_TEXT: Final = rb"[\t\x20-\x7e\x80-\xff]*+"
_FIELDS: Final = rb"(?:[!#$%&'*+.^_`|~0-9A-Za-z-]++:" + _TEXT + rb"\r\n)*+\r\n"
"""Field lines of a token, a colon and text, up to the empty line. Possessive: it never backtracks."""
_FIELD_SECTION: Final = re.compile(rb"\r\n" + _FIELDS)
_STATUS_LINE: Final = re.compile(rb"HTTP/1\.([01]) ([1-5][0-9]{2})(?: (" + _TEXT + rb"))?")
_METHOD: Final = METHOD.pattern.encode() + b"+"  # possessive
_DATE: Final = re.compile(rb"\r\ndate:", re.IGNORECASE)
_REQUEST_LINE: Final = re.compile(rb"(" + _METHOD + rb") ([!\"$-\[\]-~]++) HTTP/1\.([01])\r\n")
"""Refuses `#` and `\\` in targets: some servers cut a target at `#`, or read `\\` as `/`."""
_ANY_REQUEST_LINE: Final = re.compile(_METHOD + rb" ([!-~]+) HTTP/([0-9])\.([0-9])\r\n")
_KNOWN_LINE: Final = b"POST / HTTP/1.1"
"""In place of a line with a method that llhttp does not know."""
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
class RequestHead:
    """The head of one request (`core.http.message.Request`): a value, which never changes once it is made."""

    __slots__ = (
        "close",
        "field_section",
        "host",
        "method",
        "minor",
        "path",
        "query",
        "selected",
        "target",
    )

    method: str
    target: bytes
    """In origin form, or `*`."""
    path: str
    query: str
    host: str
    """As the client wrote it; empty only in HTTP/1.0."""
    minor: int
    """The minor version of HTTP: 0 or 1."""
    close: bool
    """The client will not use this connection again."""
    field_section: RequestFieldSection
    selected: tuple[bytes, ...]
    """Those of the field section. Here because they are read for every request."""

    @property
    def fields(self) -> tuple[Header, ...]:
        """The selected fields (`core.http.message.Request`)."""
        return normalized_fields(self.selected)

    @property
    def forwarded(self) -> Sequence[tuple[str, bytes]]:
        """The fields by which a proxy in front describes the client: normalized name, value. They are used
        from trusted peers only."""
        return self.field_section.forwarded

    @property
    def expects_continue(self) -> bool:
        """Whether the client waits for `100 Continue` before it sends its body."""
        section = self.field_section
        return bool(section.expectation) and self.minor == 1 and section.framing != NO_BODY

    @property
    def forwards_left(self) -> int | None:
        """How often this request may still be forwarded; None: as often as one likes.

        That is `Max-Forwards` of OPTIONS; a recipient may ignore it in other methods (RFC 9110 7.6.2). What
        is no number cannot be counted down.
        """
        fields = self.field_section.max_forwards
        if self.method != "OPTIONS" or len(fields) != 1 or not fields[0][1].isdigit():
            return None
        digits = fields[0][1].lstrip(b"0")
        return int(digits or b"0") if len(digits) <= _MAX_FORWARDS_DIGITS else MAX_FORWARDS + 1

    def max_forwards_lines(self) -> bytes:
        """The fields `Max-Forwards` for the next hop."""
        left = self.forwards_left
        if left is not None:
            return b"Max-Forwards: %d\r\n" % min(left - 1, MAX_FORWARDS)
        return b"".join([b"%b: %b\r\n" % field for field in self.field_section.max_forwards])


@final
class RequestReader:
    """Reads the request heads of one client connection. It keeps the last field sections, and nothing else:
    what it reads of a head does not depend on the heads before."""

    __slots__ = ("_cached_sections",)

    def __init__(self) -> None:
        self._cached_sections: dict[bytes, RequestFieldSection] = {}

    def read_cached(self, data: bytes, table: NameTable, limits: HeadLimits) -> RequestHead | None:
        """Read `data` if it is exactly one head whose field section was read before on this connection.

        Most heads are. Then neither the end of the head nor its fields have to be looked for. Raises
        `FramingError`.
        """
        line = _REQUEST_LINE.match(data)
        if line is None or len(data) > limits.line:
            return None
        method, target, minor = line.groups()
        known = _METHODS.get(method)
        section = self._cached_sections.get(data[line.end() - 2 :])
        if known is None or section is None or section.table is not table:
            return None
        return _request_head(known, target, minor, section)

    def read(self, head: bytes, table: NameTable, limits: HeadLimits) -> RequestHead:
        """Read a whole head, its empty line included. Raises `FramingError` with the status to respond."""
        line = _REQUEST_LINE.match(head)
        if line is None:
            raise _request_line_error(head)
        end = line.end() - 2
        if end > limits.line:
            raise FramingError("line_too_long", 414)
        method, target, minor = line.groups()
        known = _METHODS.get(method)
        if known is None:
            _check_unknown_method(method)
            head = _KNOWN_LINE + head[end:]
            end = len(_KNOWN_LINE)
        section = self._read_field_section(head, head[end:], table, limits)
        return _request_head(known or method.decode(), target, minor, section)

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


def _request_head(method: str, target: bytes, minor: bytes, section: RequestFieldSection) -> RequestHead:
    """Check the parts of a request line together with a field section. Raises `FramingError`."""
    head = RequestHead()  # without arguments, which would double its cost
    head.method = method
    head.field_section = section
    head.selected = section.selected
    head.host = section.host
    if minor == b"1":
        head.minor = 1
        head.close = section.closes
        if not section.host:
            raise FramingError("host")
    else:
        head.minor = 0
        head.close = "keep-alive" not in section.connection_options
        if section.framing == CHUNKED:  # HTTP/1.0 has none, so readers would differ (threats S6)
            raise FramingError("smuggling")
    if target[0] != _SLASH:
        head.host, target = _read_target_form(target, head)
    head.target = target
    path, _, head.query = target.decode().partition("?")
    if "%" in path or "/." in path:
        _check_path(path.encode())
    head.path = path
    return head


def _read_target_form(target: bytes, head: RequestHead) -> tuple[str, bytes]:
    """Read a target that is not in origin form; gives the Host, and the origin form, or `*` for OPTIONS.

    The authority of an absolute form replaces `Host` (RFC 9112 3.2.2).
    """
    if target == b"*" and head.method == "OPTIONS":
        return head.host, target
    absolute = _ABSOLUTE.fullmatch(target)
    if absolute is None or not is_host(absolute[1]):
        raise FramingError("target")
    return absolute[1].decode(), absolute[2] if absolute[2][:1] == b"/" else b"/" + absolute[2]


@final
class ResponseHead:
    """The head of one response: a value, which never changes once it is made."""

    __slots__ = (
        "close",
        "framing",
        "has_date",
        "length",
        "line",
        "location",
        "passthrough",
        "selected",
        "status",
    )

    status: int
    line: bytes
    """The status line for the client, without its CRLF: HTTP/1.1, and the reason phrase of the backend."""
    passthrough: bytes
    """The field lines that are forwarded as they came, each with its CRLF. Begins with the CRLF of the status
    line."""
    selected: tuple[bytes, ...]
    """The fields that the dialect reads or owns: name, value, name, value, as they came. Part of cache
    keys."""
    framing: int
    """How the content ends: one of the constants of `fields`."""
    length: int
    """Bytes of content; -1: unknown."""
    close: bool
    """The backend will not use this connection again."""
    location: tuple[tuple[bytes, bytes], ...]
    """The fields `Location` and `Content-Location`."""
    has_date: bool
    """`Date` is one of the fields that are forwarded. Where it is not, the gateway adds it (RFC 9110
    6.6.1)."""

    @property
    def selected_fields(self) -> tuple[Header, ...]:
        """The selected fields with normalized names, as dialects read them."""
        return normalized_fields(self.selected)

    def with_content(self, length: int, passthrough: bytes) -> ResponseHead:
        """The same response with other content, of `length` bytes (-1: unknown), and other fields about
        it."""
        head = ResponseHead()
        head.status, head.line, head.close = self.status, self.line, self.close
        head.selected, head.location = self.selected, self.location
        head.passthrough = passthrough
        head.has_date = self.has_date
        head.length = length
        head.framing = BY_LENGTH if length >= 0 else self.framing
        return head


def read_response_head(head: bytes, table: NameTable, *, is_head_request: bool) -> ResponseHead:
    """Read a whole response head. `is_head_request`: it responds to HEAD, so no content follows.

    Raises `FramingError` for anything that two readers could read differently; the caller reports a
    `Failure`.
    """
    end = head.find(b"\r")
    text = head[:end]
    line = _status_lines.get(text) or _read_status_line(text)
    if len(head) > _MIN_FIELD_SIZE * MAX_RESPONSE_FIELDS and head.count(b"\r\n") - 2 > MAX_RESPONSE_FIELDS:
        raise FramingError("too_many_headers")
    _check_with_llhttp(httptools.HttpResponseParser(_NO_CALLBACKS), head)
    response = ResponseHead()  # without arguments, which would double its cost
    response.status, response.line, minor = line
    location: tuple[tuple[bytes, bytes], ...] = ()
    selected: list[bytes] = []
    connection: list[bytes] = []
    length: bytes | None = None
    coding: bytes | None = None
    parts = table.pattern.split(head)
    for name, value in zip(parts[1::3], parts[2::3], strict=True):
        kind = table[name]
        if kind == names.SELECTED:
            selected += (name, value)
        elif kind == names.LENGTH and length is None:
            length = value
        elif kind == names.CONNECTION:
            connection.append(value.strip(OWS))
        elif kind == names.LOCATION:
            location = (*location, (name, value.strip(OWS)))
        elif kind == names.CODING and coding is None:
            coding = value.strip(OWS).lower()
        elif kind != names.DROP:
            raise FramingError("transfer_encoding" if kind == names.CODING else "content_length")
    response.selected = tuple(selected)
    response.location = location
    passthrough = b"".join(parts[::3])[end:-2]
    if connection and (connection != KEEP_ALIVE_VALUES or minor == 0):
        options, passthrough = without_listed_fields(passthrough, connection, table)
        response.close = "close" in options or (minor == 0 and "keep-alive" not in options)
    else:
        response.close = minor == 0
    response.passthrough = passthrough
    # `find` costs half of `in`, and most servers write `Date` in these letters.
    response.has_date = passthrough.find(b"\r\nDate:") >= 0 or _DATE.search(passthrough) is not None
    _set_framing(response, length, coding, is_head_request)
    return response


def _set_framing(
    response: ResponseHead,
    length: bytes | None,
    coding: bytes | None,
    is_head_request: bool,  # noqa: FBT001 - a keyword costs more
) -> None:
    """Whether there is a body, and how it ends (RFC 9112 6.3)."""
    response.length = read_length(length) if length is not None else -1
    if coding is not None and (length is not None or coding != b"chunked"):
        raise FramingError("transfer_encoding")
    if is_head_request or response.status < 200 or response.status in _BODILESS:
        response.framing = NO_BODY
    elif length is not None:
        response.framing = BY_LENGTH if response.length else NO_BODY
    elif coding is not None:
        response.framing = CHUNKED
    else:
        response.framing = UNTIL_CLOSE
        response.close = True


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
    return FramingError("target")  # one with `#` or a backslash


def _check_unknown_method(method: bytes) -> None:
    """Check a method that servers do not know. Raises `FramingError` for one that is not proxied.

    Methods are case-sensitive (RFC 9110 9.1), but many frameworks compare them in capitals. A known one in
    other letters would be that method to them, and another one here.
    """
    if method in _NOT_PROXIED:
        raise FramingError("method", 405)
    capitals = method.upper()
    if capitals in _METHODS or capitals in _NOT_PROXIED:
        raise FramingError("method")


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
) -> RequestHead:
    """Read a request that is only described, as a client connection reads it: for explanations.

    `target` and `headers` are ASCII without control bytes. Without `Host` it is a request of HTTP/1.0, which
    needs none. Raises `FramingError` with the status that the gateway would respond.
    """
    lines = [f"{name}: {value}\r\n" for name, value in headers]
    minor = int(any(line[:5].lower() == "host:" for line in lines))
    head = f"{method} {target} HTTP/1.{minor}\r\n{''.join(lines)}\r\n"
    return RequestReader().read(head.encode("latin-1"), table, limits)


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
