"""HTTP/1.1 heads: where one ends, what its lines may hold, and what follows about the body.

httptools (llhttp) must find every head clean, and so must our own grammar: of first lines always, of a
request's fields too (llhttp takes no field of a reply that it would not; tests/dataplane holds the two
against each other). What two readers could read differently is refused: bare CR or LF, folded lines, control
bytes, two Hosts, any length or coding with two meanings (RFC 9112 6.3, hardening S1-S19). Only whole heads
are fed to llhttp, bodies never, because it can neither pause nor say where a message ended. Nothing here
knows a version, a route or a socket.
"""

from __future__ import annotations

import re
from typing import Final, Protocol, TypeAlias, final
from urllib.parse import unquote_to_bytes

import httptools

from gateway.core.message import METHODS, Header
from gateway.dataplane import names
from gateway.dataplane.fields import (
    BLANKS,
    BY_LENGTH,
    CHUNKED,
    KEEP_ALIVE,
    NO_BODY,
    UNTIL_CLOSE,
    Fields,
    RequestFields,
    is_host,
)
from gateway.dataplane.names import NameTable
from gateway.errors import FramingError

HEAD_END: Final = b"\r\n\r\n"

_METHODS: Final = {name.encode(): name for name in METHODS}
"""By the bytes of a request line."""
MAX_REPLY_HEADERS: Final = 200
MAX_REPLY_HEAD: Final = 64 * 1024
REMEMBERED_BLOCKS: Final = 8
"""Blocks of fields that a client connection remembers: clients send the same one with request after
request."""
REMEMBERED_BLOCK: Final = 2048
"""Bytes of a block worth remembering; together at most 16 KiB a connection, half of what one head may
hold."""
_SHORTEST_FIELD: Final = 4
"""Bytes of `a:` and its line end: a head with fewer bytes than this many a field cannot have too many."""

_ALLOWED_BYTES: Final = bytes({0x09, 0x0A, 0x0D, *range(0x20, 0x7F), *range(0x80, 0x100)})
_TEXT: Final = rb"[\t\x20-\x7e\x80-\xff]*+"
_FIELDS: Final = rb"(?:[!#$%&'*+.^_`|~0-9A-Za-z-]++:" + _TEXT + rb"\r\n)*+\r\n"
"""Every field a token, a colon and text, up to the empty line; possessive, so it never goes back."""
_BLOCK: Final = re.compile(rb"\r\n" + _FIELDS)
_STATUS_LINE: Final = re.compile(rb"HTTP/1\.([01]) ([1-5][0-9]{2})(?: (" + _TEXT + rb"))?")
_REQUEST_LINE: Final = re.compile(rb"([A-Z]{3,16}) ([!\"$-\[\]-~]++) HTTP/1\.([01])\r\n")
_ANY_REQUEST_LINE: Final = re.compile(rb"[A-Z][A-Z-]{0,31} ([!-~]+) HTTP/([0-9])\.([0-9])\r\n")
_ABSOLUTE: Final = re.compile(rb"[Hh][Tt][Tt][Pp][Ss]?://([^/?]*)(.*)")
_BAD_ESCAPE: Final = re.compile(rb"%(?![0-9A-Fa-f]{2})|%2[fF]|%5[cC]|%[01][0-9A-Fa-f]|%7[fF]")
_SLASH: Final = 0x2F
_BODILESS: Final = frozenset({204, 304})

Parser: TypeAlias = httptools.HttpRequestParser | httptools.HttpResponseParser


class HeadLimits(Protocol):
    """Bytes of a request's head, bytes of one line of it, number of header lines."""

    @property
    def head(self) -> int: ...
    @property
    def line(self) -> int: ...
    @property
    def headers(self) -> int: ...


@final
class RequestReader:
    """Reads one request head after another of one client connection; its attributes are the last one's."""

    method: str
    target: bytes
    """Origin form, or `*`: what goes on to the backend."""
    path: str
    query: str
    host: str = ""
    """As the client wrote it; empty only in HTTP/1.0."""
    minor: int = 1
    close: bool
    """The client will not use this connection again."""
    block: RequestFields
    apart: tuple[bytes, ...]

    def __init__(self) -> None:
        self._blocks: dict[bytes, RequestFields] = {}

    def read_known(self, data: bytes, table: NameTable, limits: HeadLimits) -> bool:
        """Read `data` if it is exactly one head whose block of fields was read before on this connection:
        then nobody needs to look for its end, nor at its fields. Mostly it is. Raises `FramingError`."""
        line = _REQUEST_LINE.match(data)
        if line is None or line[1] not in _METHODS or len(data) > limits.line:
            return False
        fields = self._blocks.get(data[line.end() - 2 :])
        if fields is None or fields.table is not table:
            return False
        self._take(line, fields)
        return True

    def read(self, head: bytes, table: NameTable, limits: HeadLimits) -> None:
        """Read a whole head, up to and with its empty line. Raises `FramingError` with the status to
        answer."""
        line = _REQUEST_LINE.match(head)
        if line is None or line[1] not in _METHODS:
            raise _refused(head)
        end = line.end() - 2
        if end > limits.line:
            raise FramingError("line_too_long", 414)
        self._take(line, self._read_block(head, head[end:], table, limits))

    def _take(self, line: re.Match[bytes], fields: RequestFields) -> None:
        """Put a request line and a block of fields together."""
        method, target, minor = line.groups()
        self.method = _METHODS[method]
        self.block = fields
        self.apart = fields.apart
        self.host = fields.host
        if minor == b"1":
            self.minor = 1
            self.close = fields.closes
            if not fields.host:
                raise FramingError("host")
        else:
            self.minor = 0
            self.close = "keep-alive" not in fields.tokens
            if fields.framing == CHUNKED:  # nobody knew it then: two readers would differ (hardening S6)
                raise FramingError("smuggling")
        if target[0] != _SLASH:
            target = self._read_other_form(target)
        self.target = target
        path, _, self.query = target.decode().partition("?")
        if "%" in path or "/." in path:
            _check_path(path.encode())
        self.path = path

    @property
    def fields(self) -> tuple[Header, ...]:
        """The fields set apart for dialects (`core.message.Request`)."""
        return self.block.pairs

    @property
    def expects_continue(self) -> bool:
        """Whether the client waits for `100 Continue` before it sends its body."""
        return bool(self.block.expects) and self.minor == 1 and self.block.framing != NO_BODY

    def _read_block(self, head: bytes, block: bytes, table: NameTable, limits: HeadLimits) -> RequestFields:
        """A block of fields that was not seen on this connection before."""
        if not _BLOCK.fullmatch(block):
            raise FramingError(_what_is_wrong(head))
        if len(block) > limits.line and any(len(each) > limits.line for each in block.split(b"\r\n")):
            raise FramingError("line_too_long", 431)
        if len(block) > _SHORTEST_FIELD * limits.headers and block.count(b"\r\n") - 2 > limits.headers:
            raise FramingError("too_many_headers", 431)
        _ask_llhttp(httptools.HttpRequestParser(_SILENT), head)
        fields = RequestFields(block, table)
        if fields.framing == NO_BODY and len(block) <= REMEMBERED_BLOCK:
            if len(self._blocks) >= REMEMBERED_BLOCKS:
                self._blocks.clear()
            self._blocks[block] = fields
        return fields

    def _read_other_form(self, target: bytes) -> bytes:
        """Absolute form, whose authority wins over Host (RFC 9112 3.2.2), or `*` for OPTIONS; gives the
        origin form."""
        if target == b"*" and self.method == "OPTIONS":
            return target
        absolute = _ABSOLUTE.fullmatch(target)
        if absolute is None or not is_host(absolute[1]):
            raise FramingError("target")
        self.host = absolute[1].decode()
        return absolute[2] if absolute[2][:1] == b"/" else b"/" + absolute[2]


@final
class ReplyReader(Fields):
    """Reads the reply heads of one backend connection; its attributes are the last one's.

    Raises `FramingError` for anything that two readers could read differently: the caller answers 502.
    """

    status: int
    line: bytes
    """The status line for the client, without its end: the backend's reason, our version."""
    close: bool
    """The backend will not use this connection again."""
    location: list[tuple[bytes, bytes]]

    def read(self, head: bytes, table: NameTable, *, to_head: bool) -> None:
        """Read a whole head. `to_head`: it answers a HEAD request, so no body follows whatever it says."""
        end = head.find(b"\r")
        said = head[:end]
        line = _status_lines.get(said) or _read_status_line(said)
        if len(head) > _SHORTEST_FIELD * MAX_REPLY_HEADERS and head.count(b"\r\n") - 2 > MAX_REPLY_HEADERS:
            raise FramingError("too_many_headers")
        _ask_llhttp(httptools.HttpResponseParser(_SILENT), head)
        self.status, self.line, minor = line
        self.location = []
        apart: list[bytes] = []
        for name, value in self._cut(head, end, table):
            kind = table[name]
            if kind == names.APART:
                apart += (name, value)
            elif kind == names.LENGTH and self._length is None:
                self._length = value
            elif kind == names.CONNECTION:
                self._listed.append(value.strip(BLANKS))
            elif kind == names.LOCATION:
                self.location.append((name, value.strip(BLANKS)))
            else:
                self._common(kind, value)
        self.apart = tuple(apart)
        if self._listed and (self._listed != KEEP_ALIVE or minor == 0):
            self.tokens = self._take_off_listed()
            self.close = "close" in self.tokens or (minor == 0 and "keep-alive" not in self.tokens)
        else:
            self.close = minor == 0
        self._frame(to_head=to_head)

    def _frame(self, *, to_head: bool) -> None:
        """Whether a body follows, and how it ends (RFC 9112 6.3)."""
        self.length = self._read_length() if self._length is not None else -1
        if self._coding is not None and (self._length is not None or self._coding != b"chunked"):
            raise FramingError("transfer_encoding")
        if to_head or self.status < 200 or self.status in _BODILESS:
            self.framing = NO_BODY
        elif self._length is not None:
            self.framing = BY_LENGTH if self.length else NO_BODY
        elif self._coding is not None:
            self.framing = CHUNKED
        else:
            self.framing = UNTIL_CLOSE
            self.close = True


StatusLine: TypeAlias = tuple[int, bytes, int]
"""Status, the line for the client, minor version."""

_status_lines: dict[bytes, StatusLine] = {}
"""Lines read before: a handful in a backend's life. Bounded, because a hostile one may vary its reasons."""
_REMEMBERED_LINES: Final = 512
_REMEMBERED_LINE: Final = 64
"""Bytes; the longest registered reason makes 44, a hostile one 64 KiB."""


def _read_status_line(said: bytes) -> StatusLine:
    """A status line not seen before, without its end. Raises `FramingError`."""
    match = _STATUS_LINE.fullmatch(said)
    if match is None:
        raise FramingError("status_line")
    line = (int(match[2]), b"HTTP/1.1 %b %b" % (match[2], match[3] or b""), int(match[1]))
    if len(_status_lines) < _REMEMBERED_LINES and len(said) <= _REMEMBERED_LINE:
        _status_lines[said] = line
    return line


class _Silent:
    """llhttp is asked for its verdict only: no callbacks."""


_SILENT: Final = _Silent()


def _ask_llhttp(parser: Parser, head: bytes) -> None:
    """Let llhttp read a head. An upgrade that it announces is none of ours: the fields are dropped by
    name."""
    try:
        parser.feed_data(head)
    except httptools.HttpParserUpgrade:
        pass
    except httptools.HttpParserError:
        raise FramingError("head") from None


def _refused(head: bytes) -> FramingError:
    """Why a request line is not one that we serve, and with which status that is told."""
    line = _ANY_REQUEST_LINE.match(head)
    if line is None:
        return FramingError("request_line")
    if line[2] != b"1" or line[3] not in b"01":
        return FramingError("http_version", 505)
    if b"#" in line[1] or b"\\" in line[1]:
        return FramingError("target")
    return FramingError("method", 405)


def _what_is_wrong(head: bytes) -> str:
    """The label for a head that our grammar refuses though its first line is good."""
    if b"\r\n " in head or b"\r\n\t" in head:
        return "folded_line"
    ends = head.count(b"\r\n")
    if head.count(b"\n") != ends or head.count(b"\r") != ends:
        return "line_end"
    if head.translate(None, _ALLOWED_BYTES):
        return "control_byte"
    return "header_name"


def refused_line(method: str, target: str) -> str | None:
    """Why no request with this line gets as far as a decision, in one sentence; None: it does. For
    explanations."""
    head = f"{method} {target} HTTP/1.1\r\n\r\n".encode()
    line = _REQUEST_LINE.match(head)
    try:
        if line is None or line[1] not in _METHODS:
            raise _refused(head)
        _check_path(target.partition("?")[0].encode())
    except FramingError as refusal:
        return (
            f"the gateway answers {refusal.status} to this request line, before any service: {refusal.reason}"
        )
    return None


def _check_path(path: bytes) -> None:
    """A path with escapes or dots: refuse what another reader would read as another path (hardening
    P1-P6)."""
    if _BAD_ESCAPE.search(path):
        raise FramingError("path")
    plain = unquote_to_bytes(path)
    try:
        plain.decode("utf-8")
    except UnicodeDecodeError:
        raise FramingError("path") from None
    if any(segment.split(b";", 1)[0] in (b".", b"..") for segment in plain.split(b"/")):
        raise FramingError("path")
