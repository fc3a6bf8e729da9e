"""HTTP/1.1 heads: where one ends, what its lines may hold, and what follows about the body.

httptools (llhttp) splits a head into its fields; whatever it lets through and we do not understand is refused here:
bare CR or LF, folded lines, control bytes, two Hosts, any length or coding that two readers could read differently
(RFC 9112 6.3, hardening S1-S19). Only whole heads are fed to llhttp, bodies never, because it can neither pause nor
say where a message ended. Nothing here knows a version, a route or a socket.
"""

from __future__ import annotations

import re
from typing import Final, Protocol, TypeAlias, final
from urllib.parse import unquote_to_bytes

import httptools

from gateway.core.message import UNLISTABLE, Header, fold
from gateway.dataplane import names
from gateway.dataplane.names import NameTable
from gateway.errors import FramingError

HEAD_END: Final = b"\r\n\r\n"

NO_BODY: Final = 0
BY_LENGTH: Final = 1
CHUNKED: Final = 2
UNTIL_CLOSE: Final = 3

_ALLOWED_BYTES: Final = bytes({0x09, 0x0A, 0x0D, *range(0x20, 0x7F), *range(0x80, 0x100)})
_BLANKS: Final = b" \t"
_SLASH: Final = 0x2F
_TEXT: Final = rb"[\t\x20-\x7e\x80-\xff]*+"
_FIELDS: Final = rb"(?:[!#$%&'*+.^_`|~0-9A-Za-z-]++:" + _TEXT + rb"\r\n)*+\r\n"
"""Every field a token, a colon and text, up to the empty line; possessive, so it never goes back."""
_REQUEST: Final = re.compile(rb"([A-Z]{3,16}) ([!\"$-\[\]-~]++) HTTP/1\.([01])\r\n" + _FIELDS)
_REPLY: Final = re.compile(rb"HTTP/1\.([01]) ([1-5][0-9]{2})(?: (" + _TEXT + rb"))?\r\n" + _FIELDS)
_REQUEST_LINE: Final = re.compile(rb"[A-Z][A-Z-]{0,31} ([!-~]+) HTTP/([0-9])\.([0-9])\r\n")
_ABSOLUTE: Final = re.compile(rb"[Hh][Tt][Tt][Pp][Ss]?://([^/?]*)(.*)")
_HOST: Final = re.compile(rb"(?:[A-Za-z0-9._~-]{1,255}|\[[0-9A-Fa-f:.]{2,45}\])(?::[0-9]{1,5})?")
_LENGTH: Final = re.compile(rb"[0-9]{1,18}[ \t]*")
_BAD_ESCAPE: Final = re.compile(rb"%(?![0-9A-Fa-f]{2})|%2[fF]|%5[cC]|%[01][0-9A-Fa-f]|%7[fF]")

_BODILESS: Final = frozenset({204, 304})
MAX_REPLY_HEADERS: Final = 200
MAX_REPLY_HEAD: Final = 64 * 1024
METHODS: Final = {
    name.encode(): name
    for name in ("GET", "HEAD", "POST", "PUT", "PATCH", "DELETE", "OPTIONS", "COPY", "LINK", "LOCK", "MKCOL", "MOVE")
    + ("PROPFIND", "PROPPATCH", "PURGE", "QUERY", "REPORT", "SEARCH", "UNLINK", "UNLOCK")
}
"""What is proxied; CONNECT, TRACE and their like never reach a backend (hardening H6)."""


Parser: TypeAlias = httptools.HttpRequestParser | httptools.HttpResponseParser


class HeadLimits(Protocol):
    """Bytes of a request's head, bytes of one line of it, number of header lines."""

    @property
    def head(self) -> int: ...
    @property
    def line(self) -> int: ...
    @property
    def headers(self) -> int: ...


class _Head:
    """What requests and replies have in common: the fields, sorted by name, and the body's framing."""

    kept: bytes
    """Fields that go on as they came, each with its CRLF; begins with the first line's CRLF."""
    apart: tuple[bytes, ...]
    """Those set apart for a dialect: name, value, name, value, as they came. A key for remembering."""
    framing: int
    length: int
    """Of the body; -1: not told."""
    close: bool
    """The peer will not use this connection again."""

    _table: NameTable
    _length: bytes | None
    _coding: bytes | None
    _listed: list[bytes]

    def _cut(self, head: bytes, first_line: int, table: NameTable) -> list[bytes]:
        """Cut the fields that matter out of a clean head, whose first line has this many bytes (without its end);
        returns [name, value, name, value …]."""
        parts = table.pattern.split(head)
        if len(parts) == 1:
            self.kept = head[first_line:-2]
            return []
        self.kept = (parts[0][first_line:] + b"".join(parts[3::3]))[:-2]
        del parts[::3]
        return parts

    def _common(self, kind: int, value: bytes) -> None:
        """The fields that frame a message, in either direction."""
        if kind == names.LENGTH:
            raise FramingError("content_length")  # the first one was taken where it was read
        if kind == names.CODING:
            if self._coding is not None:
                raise FramingError("transfer_encoding")
            self._coding = value.strip(_BLANKS)
        elif kind == names.CONNECTION:
            self._listed.append(value.strip(_BLANKS))

    @property
    def fields(self) -> tuple[Header, ...]:
        """The fields set apart, names folded: what dialects read."""
        apart = self.apart
        return tuple(
            (fold(name.decode()), value.strip(_BLANKS).decode("latin-1")) for name, value in zip(apart[::2], apart[1::2], strict=True)
        )

    def _read_length(self) -> int:
        """The body's length in bytes. Sign, blanks, lists and non-ASCII digits are refused (hardening S3, S4)."""
        assert self._length is not None
        if not _LENGTH.fullmatch(self._length):
            raise FramingError("content_length")
        return int(self._length)

    def _take_off_listed(self) -> set[str]:
        """Remove the fields that `Connection` names; gives its tokens in lower case (RFC 9110 7.6.1)."""
        if self._listed == _KEEP_ALIVE:
            return _NO_TOKENS
        tokens = {item.strip().lower() for value in self._listed for item in value.decode("latin-1").split(",")}
        others = {fold(token) for token in tokens} - {"close", "keep-alive", "", "te", "upgrade"}
        if others & UNLISTABLE or others & self._table.apart:
            raise FramingError("connection_listed")
        if others:
            self.drop(names.fields_named(others))
        return tokens

    def drop(self, fields: re.Pattern[bytes]) -> None:
        """Take these fields (`names.fields_named`) off those that go on."""
        self.kept = fields.sub(b"", self.kept)


_KEEP_ALIVE: Final = [b"keep-alive"]
_NO_TOKENS: Final[set[str]] = {"keep-alive"}


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


def _refuse_request(head: bytes) -> FramingError:
    """Why a request's head is not of our grammar, and with which status that is told."""
    line = _REQUEST_LINE.match(head)
    if line is None:
        return FramingError("request_line")
    if line[2] != b"1" or line[3] not in b"01":
        return FramingError("http_version", 505)
    if b"#" in line[1] or b"\\" in line[1]:
        return FramingError("target")
    return FramingError(_what_is_wrong(head))


@final
class RequestReader(_Head):
    """Reads one request head after another of one client connection; its attributes are the last one's."""

    method: str
    target: bytes
    """Origin form, or `*`: what goes on to the backend."""
    path: str
    query: str
    minor: int
    expects_continue: bool
    forwarded: list[tuple[str, bytes]]
    """Fields that speak of the client (folded name, value), to be believed from trusted peers only."""
    via: list[bytes]

    _host: list[bytes]
    _expect: bytes | None
    _good_host = b""
    """The last one that was found good: mostly the next one is the same."""
    host = ""

    def read(self, head: bytes, table: NameTable, limits: HeadLimits) -> None:
        """Read a whole head, up to and with its empty line. Raises `FramingError` with the status to answer."""
        if len(head) > limits.line:
            _check_lines(head, limits)
        if head.count(b"\n") - 2 > limits.headers:
            raise FramingError("too_many_headers", 431)
        clean = _REQUEST.fullmatch(head)
        if clean is None:
            raise _refuse_request(head)
        method, target, minor = clean.groups()
        if method not in METHODS:
            raise FramingError("method", 405)
        self.method = METHODS[method]
        self.minor = 1 if minor == b"1" else 0
        _feed(httptools.HttpRequestParser(_SILENT), head)
        self._read_fields(self._cut(head, clean.end(3), table), table)
        self._read_target(target)
        self._read_framing()

    def _read_fields(self, parts: list[bytes], table: NameTable) -> None:
        self._table = table
        self._length = self._coding = self._expect = None
        self._listed = []
        self._host = []
        self.forwarded = []
        self.via = []
        apart: list[bytes] = []
        for at in range(0, len(parts), 2):
            name, value = parts[at], parts[at + 1]
            kind = table[name]
            if kind == names.APART:
                apart += (name, value)
            elif kind == names.LENGTH and self._length is None:
                self._length = value
            elif kind == names.HOST:
                self._host.append(value)
            elif kind == names.FORWARDED:
                self.forwarded.append((fold(name.decode()), value.strip(_BLANKS)))
            elif kind == names.VIA:
                self.via.append(value)
            elif kind == names.EXPECT:
                self._expect = value.strip(_BLANKS) if self._expect is None else b"?"
            else:
                self._common(kind, value)
        self.apart = tuple(apart)

    def _read_target(self, target: bytes) -> None:
        """Origin form as it came; of an absolute form the authority wins over Host (RFC 9112 3.2.2)."""
        hosts = self._host
        if len(hosts) != 1 and (hosts or self.minor):
            raise FramingError("host")
        host = hosts[0] if hosts else b""
        if host != self._good_host:
            host = host.strip(_BLANKS)
            if hosts and not _HOST.fullmatch(host):
                raise FramingError("host")
            self._good_host = host
            self.host = host.decode()
        if target[0] != _SLASH:
            target = self._read_other_form(target)
        self.target = target
        path, _, self.query = target.decode().partition("?")
        if "%" in path or "/." in path:
            _check_path(path.encode())
        self.path = path

    def _read_other_form(self, target: bytes) -> bytes:
        """Absolute form, or `*` for OPTIONS; gives the origin form."""
        if target == b"*" and self.method == "OPTIONS":
            return target
        absolute = _ABSOLUTE.fullmatch(target)
        if absolute is None or not _HOST.fullmatch(absolute[1]):
            raise FramingError("target")
        self._good_host = absolute[1]
        self.host = absolute[1].decode()
        return absolute[2] if absolute[2][:1] == b"/" else b"/" + absolute[2]

    def _read_framing(self) -> None:
        """How long the body is, whether the connection goes on. Mostly: no body, and it does."""
        self.expects_continue = False
        self.framing, self.length = NO_BODY, 0
        if self._listed:
            tokens = self._take_off_listed()
            self.close = "close" in tokens or (self.minor == 0 and "keep-alive" not in tokens)
        else:
            self.close = self.minor == 0
        if self._coding is not None:
            if self._length is not None or self.minor == 0:
                raise FramingError("smuggling")
            if self._coding.lower() != b"chunked":
                known = self._coding.lower() in (b"gzip", b"deflate", b"compress", b"identity")
                raise FramingError("transfer_encoding", 501 if known else 400)
            self.framing, self.length = CHUNKED, -1
        elif self._length is not None:
            self.length = self._read_length()
            self.framing = BY_LENGTH if self.length else NO_BODY
        if self._expect is not None:
            if self._expect.lower() != b"100-continue":
                raise FramingError("expect", 417)
            self.expects_continue = self.minor == 1 and self.framing != NO_BODY


@final
class ReplyReader(_Head):
    """Reads the reply heads of one backend connection; its attributes are the last one's.

    Raises `FramingError` for anything that two readers could read differently: the caller answers 502.
    """

    status: int
    reason: bytes
    location: list[tuple[bytes, bytes]]

    def read(self, head: bytes, table: NameTable, *, to_head: bool) -> None:
        """Read a whole head. `to_head`: it answers a HEAD request, so no body follows whatever it says."""
        if head.count(b"\n") - 2 > MAX_REPLY_HEADERS:
            raise FramingError("too_many_headers")
        clean = _REPLY.fullmatch(head)
        if clean is None:
            raise FramingError(_what_is_wrong(head))
        minor, status, self.reason = clean.groups(b"")
        self.status = int(status)
        _feed(httptools.HttpResponseParser(_SILENT), head)
        self._table = table
        self._length = self._coding = None
        self._listed = []
        self.location = []
        apart: list[bytes] = []
        parts = self._cut(head, head.index(b"\r"), table)
        for at in range(0, len(parts), 2):
            name, value = parts[at], parts[at + 1]
            kind = table[name]
            if kind == names.APART:
                apart += (name, value)
            elif kind == names.LENGTH and self._length is None:
                self._length = value
            elif kind == names.LOCATION:
                self.location.append((name, value))
            else:
                self._common(kind, value)
        self.apart = tuple(apart)
        self._read_framing(minor, to_head=to_head)

    def _read_framing(self, minor: bytes, *, to_head: bool) -> None:
        """RFC 9112 6.3; a length beside a coding, or a coding that is not `chunked`, is no honest reply."""
        if self._listed:
            tokens = self._take_off_listed()
            self.close = "close" in tokens or (minor == b"0" and "keep-alive" not in tokens)
        else:
            self.close = minor == b"0"
        self.length = self._read_length() if self._length is not None else -1
        if self._coding is not None and (self._length is not None or self._coding.lower() != b"chunked"):
            raise FramingError("transfer_encoding")
        if to_head or self.status in _BODILESS or self.status < 200:
            self.framing = NO_BODY
        elif self._coding is not None:
            self.framing = CHUNKED
        elif self._length is not None:
            self.framing = BY_LENGTH if self.length else NO_BODY
        else:
            self.framing = UNTIL_CLOSE
            self.close = True


class _Silent:
    """llhttp is asked for its verdict only: no callbacks."""


_SILENT: Final = _Silent()


def _feed(parser: Parser, head: bytes) -> None:
    """Let llhttp read a head. An upgrade that it announces is none of ours: the fields are dropped by name."""
    try:
        parser.feed_data(head)
    except httptools.HttpParserUpgrade:
        pass
    except httptools.HttpParserError:
        raise FramingError("head") from None


def _check_lines(head: bytes, limits: HeadLimits) -> None:
    """No line longer than allowed; only asked when the whole head is longer than one line may be."""
    for number, line in enumerate(head.split(b"\r\n")):
        if len(line) > limits.line:
            raise FramingError("line_too_long", 431 if number else 414)


def _check_path(path: bytes) -> None:
    """A path with escapes or dots: refuse what another reader would read as another path (hardening P1-P6)."""
    if _BAD_ESCAPE.search(path):
        raise FramingError("path")
    plain = unquote_to_bytes(path)
    try:
        plain.decode("utf-8")
    except UnicodeDecodeError:
        raise FramingError("path") from None
    if any(segment.split(b";", 1)[0] in (b".", b"..") for segment in plain.split(b"/")):
        raise FramingError("path")
